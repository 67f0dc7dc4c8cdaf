# %% [markdown]
# # Regression with unknown bounds
#
# Nobody knows how large incomes are in this data, and looking at them is not allowed. So a small
# part of the budget is used to estimate bounds privately, and the rest for the model.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

rng = np.random.default_rng(4)
n = int(40_000 * max(SIZE, 1.0))
years = rng.uniform(0, 40, n)
training = rng.uniform(0, 10, n)
wage = 900 + 45 * years + 130 * training + 150 * rng.standard_t(4, n)
X = np.column_stack([years, training])

# %% [markdown]
# The candidates for the quantiles are public: amounts up to a million, on a grid that grows by 2%.
# Two quantiles of the target and one of each column cost an epsilon of 0.4 in total.

# %%
from discreet import PrivateRidge, private_quantiles

candidates = np.concatenate([[0.0], np.geomspace(1, 1e6, 700)])
low, high = private_quantiles(
    wage, [0.02, 0.98], candidates=candidates, epsilon=0.2
).values[0]
top = private_quantiles(X, 0.98, candidates=candidates, epsilon=0.2).values.ravel()
print(f"wages between {low:.0f} and {high:.0f}; columns up to {top.round(1)}")

# %% [markdown]
# Each column is divided by its released bound, so that rows have a norm near 1. For comparison we
# also guess bounds. A guess costs no budget, so its model gets the whole epsilon of 0.7, but the
# wider the bounds, the more noise.

# %%
import pandas as pd

truth = 900 + X @ [45, 130]
rows = []
bounds = {
    "paid for": (0.3, low, high, top),
    "ten times too wide": (0.7, 0.0, 10 * high, 10 * top),
    "a thousand times too wide": (0.7, 0.0, 1000 * high, 1000 * top),
}
for name, (epsilon, lower, upper, scale) in bounds.items():
    for _ in range(5):
        model = PrivateRidge(
            epsilon, 1e-6, target_bounds=(lower, upper), feature_bound=1.7
        )
        model.fit(X / scale, wage)
        error = np.sqrt(np.mean((model.predict(X / scale) - truth) ** 2))
        rows.append({"bounds": name, "error": error})
table = pd.DataFrame(rows)

# %%
import altair as alt

chart = alt.Chart(
    table, title="Error of predictions, five fits each", width=480, height=160
)
chart.mark_circle(size=80, color="#0072B2").encode(
    alt.X("error:Q", title="root mean square error", scale=alt.Scale(type="log")),
    alt.Y("bounds:N", title=None, sort=None),
)

# %% [markdown]
# A guess that is ten times too wide even beats the released bounds here: it uses no budget and cuts
# off no values, and the solver clips residuals anyway. With a guess that is a thousand times too
# wide, nothing is left but noise. So guess generously if the order of magnitude is public, and
# spend budget on bounds if it is not.

# %%
mean = table.groupby("bounds")["error"].mean()
print(mean.round(1).to_string())
assert mean["paid for"] < mean["a thousand times too wide"] / 5
assert low < np.median(wage) < high
