# %% [markdown]
# # One ledger for everything
#
# Quantiles, two models and a test score are released, all about the same people. What do they cost
# together? A ledger keeps the total, and refuses a release that would exceed the cap.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

from discreet import (
    BudgetExceeded,
    Ledger,
    PrivateLogisticRegression,
    PrivateRidge,
    evaluate,
    private_quantiles,
)

rng = np.random.default_rng(12)
n = int(10_000 * SIZE)
X = rng.normal(size=(n, 4)) / 3
y = (X @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int)
weight = 70 + 10 * X[:, 0] + 3 * rng.normal(size=n)

ledger = Ledger("people.ledger", epsilon=2.0, delta=1e-6)

# %%
private_quantiles(
    weight, [0.05, 0.95], candidates=np.arange(20, 200), epsilon=0.2, ledger=ledger
)
model = PrivateLogisticRegression(0.8, 1e-7, classes=[0, 1], ledger=ledger).fit(X, y)
PrivateRidge(0.5, 1e-7, target_bounds=(40, 110), ledger=ledger).fit(X, weight)
evaluate(model, X, y, epsilon=0.3, delta=1e-7, ledger=ledger)
print(ledger.spent())
print(ledger.remaining())

# %% [markdown]
# A release whose cost exceeds the remaining budget is refused before anything private runs.

# %%
try:
    PrivateLogisticRegression(1.9, 1e-7, classes=[0, 1], ledger=ledger).fit(X, y)
except BudgetExceeded as refusal:
    print("refused:", str(refusal).splitlines()[0])

# %%
import altair as alt
import pandas as pd

asked = {"quantiles": 0.2, "classifier": 0.8, "regression": 0.5, "evaluation": 0.3}
rows = [
    {"what": name, "epsilon": value, "how": "added up by hand"}
    for name, value in asked.items()
]
rows.append(
    {"what": "together", "epsilon": ledger.spent().epsilon, "how": "by the ledger"}
)
chart = alt.Chart(
    pd.DataFrame(rows),
    title="The parts, and what the ledger says",
    width=480,
    height=140,
)
chart.mark_bar().encode(
    alt.X("sum(epsilon):Q", title="epsilon"),
    alt.Y("how:N", title=None),
    alt.Color(
        "what:N",
        title=None,
        scale=alt.Scale(range=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"]),
    ),
    order=alt.Order("what:N"),
)

# %%
spent = ledger.spent().epsilon
print(
    f"together {spent:.3f}, by addition {sum(asked.values()):.1f}; charges: {len(ledger.history())}"
)
assert spent <= 2.0
assert len(ledger.history()) == 4
