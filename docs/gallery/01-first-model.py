# %% [markdown]
# # A first model
#
# A private logistic regression next to an ordinary one, and the accuracy at each epsilon. The data
# is invented: 20,000 patients with five measurements and one outcome.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

rng = np.random.default_rng(1)
n = int(20_000 * SIZE)
X = rng.normal(size=(n, 5)) / 3
chance = 1 / (1 + np.exp(-6 * X @ [1.0, -0.8, 0.5, 0.0, 0.2]))
y = (rng.uniform(size=n) < chance).astype(int)
train, test = slice(n // 4, None), slice(0, n // 4)

# %% [markdown]
# We declare the labels (`classes=`), because otherwise they would have to be read from the private
# data. Everything else has a default that follows from public numbers.

# %%
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLogisticRegression

ordinary = LogisticRegression().fit(X[train], y[train])
private = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1]).fit(X[train], y[train])
print(
    f"ordinary {ordinary.score(X[test], y[test]):.3f}, private {private.score(X[test], y[test]):.3f}"
)

# %% [markdown]
# The fitted model carries its guarantee in words:

# %%
print("\n".join(str(private.privacy_).splitlines()[:8]))

# %% [markdown]
# More privacy means more noise. The chart shows ten fits for each epsilon on the same records. (In
# a real project each of these fits would be charged to the same budget.)

# %%
rows = []
for epsilon in (0.01, 0.03, 0.1, 0.3, 1.0):
    for _ in range(10):
        model = PrivateLogisticRegression(epsilon, classes=[0, 1]).fit(
            X[train], y[train]
        )
        rows.append({"epsilon": epsilon, "accuracy": model.score(X[test], y[test])})

# %%
import altair as alt
import pandas as pd

table = pd.DataFrame(rows)
line = pd.DataFrame(
    {"accuracy": [ordinary.score(X[test], y[test])], "model": ["not private"]}
)
fits = alt.Chart(
    table,
    title="Accuracy on new patients, ten fits for each epsilon",
    width=520,
    height=260,
)
fits = fits.mark_circle(size=60, color="#0072B2").encode(
    alt.X(
        "epsilon:Q",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(values=[0.01, 0.03, 0.1, 0.3, 1]),
    ),
    alt.Y("accuracy:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format="%")),
)
fits + alt.Chart(line).mark_rule(color="#D55E00", strokeDash=[6, 4]).encode(
    y="accuracy:Q"
)

# %% [markdown]
# With this many records, an epsilon of 1 has no visible effect on accuracy (the dashed line is the
# ordinary model). At 0.01 the noise is visible: the fits differ from each other.

# %%
found = table.groupby("epsilon")["accuracy"].agg(["mean", "std"])
print(found.round(4).to_string())
assert found["mean"][1.0] > ordinary.score(X[test], y[test]) - 0.05
assert found["std"][0.01] > found["std"][1.0]
