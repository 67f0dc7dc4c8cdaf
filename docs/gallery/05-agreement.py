# %% [markdown]
# # Boosting made private by voting
#
# Gradient boosting has no private solver of its own, but it can be made private by voting. Many
# boosted models (*teachers*) are trained on disjoint parts of the records and vote on public rows.
# Only the noisy votes are released, and a *student* learns from them.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

rng = np.random.default_rng(5)
n, questions = int(40_000 * max(SIZE, 0.5)), 200


def customers(size):
    rows = rng.uniform(-1, 1, size=(size, 4))
    leaves = rows[:, 0] ** 2 + rows[:, 1] ** 2 < 0.6  # no linear model can say this
    return rows, np.where(rng.uniform(size=size) < 0.05, ~leaves, leaves).astype(int)


X, y = customers(n)
X_public, _ = customers(questions)  # rows without labels
X_new, y_new = customers(3_000)

# %%
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor

from discreet import PrivateLogisticRegression, PrivateTransferClassifier

teacher = HistGradientBoostingClassifier(max_iter=20)
student = RandomForestRegressor(100, min_samples_leaf=5)
model = PrivateTransferClassifier(
    teacher,
    epsilon=3.0,
    delta=1e-6,
    student=student,
    classes=[0, 1],
    n_teachers=n // 250,
)
model.fit(X, y, X_public)
print("\n".join(str(model.privacy_).splitlines()[:6]))

# %%
linear = PrivateLogisticRegression(3.0, 1e-6, classes=[0, 1]).fit(X, y)
exact = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
scores = {
    "linear, private": linear.score(X_new, y_new),
    "agreement, private": model.score(X_new, y_new),
    "boosting, not private": exact.score(X_new, y_new),
}

# %%
import altair as alt
import pandas as pd

table = pd.DataFrame({"model": list(scores), "accuracy": list(scores.values())})
chart = alt.Chart(
    table, title="Accuracy on new customers", width=460, height=150
).mark_bar(color="#0072B2")
chart.encode(
    alt.X("accuracy:Q", scale=alt.Scale(domain=[0, 1])),
    alt.Y("model:N", sort=None, title=None),
)

# %% [markdown]
# The student learns a pattern that no linear model can represent, although it never saw a private
# record, only noisy votes.

# %%
print({name: round(score, 3) for name, score in scores.items()})
assert scores["agreement, private"] > scores["linear, private"] + 0.1
