# %% [markdown]
# # Search and evaluation
#
# Choosing the best of several fits is a release of its own, and so is a published test score. Here
# both are charged to one ledger, and the score comes with an interval that includes the noise.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

from discreet import Ledger, PrivateLogisticRegression, PrivateSearchCV, evaluate

rng = np.random.default_rng(8)
n = int(16_000 * SIZE)
X = rng.normal(size=(n, 6)) / 3
y = (X @ [2.0, -1.5, 1.0, 0, 0, 0] + 0.4 * rng.logistic(size=n) > 0).astype(int)
sex = rng.choice(["female", "male"], n)
held_out = rng.uniform(size=n) < 0.3
ledger = Ledger(
    "study.ledger", epsilon=3.0, delta=1e-5, adaptive=False
)  # sizes are fixed in advance

# %%
search = PrivateSearchCV(
    PrivateLogisticRegression(classes=[0, 1], solver="noisy-gd"),
    {"l2": [1e-4, 1e-2, 1.0]},
    epsilon=1.0,
    delta=1e-6,
    method="split-parallel",
    classes=[0, 1],
    ledger=ledger,
)
search.fit(X[~held_out], y[~held_out])
print("chosen:", search.best_params_)

# %%
found = evaluate(
    search,
    X[held_out],
    y[held_out],
    epsilon=1.0,
    delta=1e-6,
    by=sex[held_out],
    by_values=["female", "male"],
    ledger=ledger,
)
print("\n".join(str(found).splitlines()[:8]))

# %%
import altair as alt
import pandas as pd

rows = []
for who, metrics in {"everybody": found.metrics, **found.by_group}.items():
    for name in ("accuracy", "AUC"):
        rows.append({"who": who, "metric": name, "value": metrics[name].value})
        rows[-1] |= {"lower": metrics[name].lower, "upper": metrics[name].upper}
table = pd.DataFrame(rows)
base = alt.Chart(
    table, title="Held-out metrics with 95% intervals", width=480, height=180
).encode(
    alt.Y("who:N", title=None, sort=["everybody", "female", "male"]),
    alt.YOffset("metric:N"),
)
color = alt.Color("metric:N", title=None, scale=alt.Scale(range=["#0072B2", "#D55E00"]))
bars = base.mark_rule(strokeWidth=2).encode(
    alt.X("lower:Q", title="value", scale=alt.Scale(zero=False)),
    alt.X2("upper:Q"),
    color,
)
bars + base.mark_circle(size=80).encode(alt.X("value:Q"), color)

# %% [markdown]
# Metrics of subgroups cost nothing extra, because each record belongs to only one of them. Their
# intervals are wider, because they have fewer records.

# %%
print(ledger.spent())
truth = search.score(X[held_out], y[held_out])
assert found["accuracy"].lower - 0.02 <= truth <= found["accuracy"].upper + 0.02
assert len(ledger.history()) == 2
