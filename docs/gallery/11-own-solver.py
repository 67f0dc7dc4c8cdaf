# %% [markdown]
# # A solver of your own
#
# A solver turns public facts into a plan, and the plan then runs on the data once. Your own solver
# can be a rule that configures another solver, or an optimizer whose result the library checks.
# Neither can break the guarantee.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

rng = np.random.default_rng(11)
n = int(12_000 * SIZE)
X = rng.normal(size=(n, 5)) / 3
y = (X @ [1.0, -1.0, 0.5, 0, 0] + 0.2 * rng.normal(size=n) > 0).astype(int)

# %% [markdown]
# First a rule. It sees the problem (numbers of rows and columns, loss, bounds) and the guarantee,
# but no record. The number of steps that it chooses is therefore public, as it must be.

# %%
from dataclasses import dataclass

from discreet import PrivateLogisticRegression
from discreet.solvers import NoisyGradientDescent


@dataclass(frozen=True)
class FewSteps:
    """Descent with as many steps as the fourth root of the number of records."""

    name = "few-steps"
    multiclass = "one-vs-rest"

    def plan(self, problem, guarantee):
        steps = max(5, round(problem.n_samples**0.25))
        return NoisyGradientDescent(n_iterations=steps).plan(problem, guarantee)


few = PrivateLogisticRegression(1.0, classes=[0, 1], solver=FewSteps())
print(few.plan(n_samples=n, n_features=5))

# %% [markdown]
# Then an optimizer. Objective perturbation adds its noise to the loss, so any optimizer may
# minimize the noisy loss. The library checks the gradient at the result, and continues with an
# optimizer of its own if the gradient is not small enough.

# %%
from discreet.solvers import ObjectivePerturbation

calls = []


def my_optimizer(value, start, jac):
    """Gradient descent with a step that is halved when it leads upward."""
    calls.append(len(start))
    theta, step = np.array(start, dtype=float), 1e-3
    for _ in range(200):
        new = theta - step * jac(theta)
        theta, step = (
            (new, 1.5 * step) if value(new) < value(theta) else (theta, step / 2)
        )
    return theta


mine = PrivateLogisticRegression(
    1.0, classes=[0, 1], solver=ObjectivePerturbation(optimizer=my_optimizer)
)

# %%
import altair as alt
import pandas as pd

solvers = {
    "few-steps (a rule)": few,
    "objective, own optimizer": mine,
    "auto": PrivateLogisticRegression(1.0, classes=[0, 1]),
}
table = pd.DataFrame(
    [
        {"solver": name, "accuracy": model.fit(X, y).score(X, y)}
        for name, model in solvers.items()
        for _ in range(5)
    ]
)
chart = alt.Chart(
    table, title="Five fits each at epsilon 1", width=460, height=160
).mark_circle(size=80, color="#0072B2")
chart.encode(
    alt.X("accuracy:Q", scale=alt.Scale(zero=False)),
    alt.Y("solver:N", title=None, sort=None),
)

# %%
print(table.groupby("solver")["accuracy"].mean().round(3).to_string())
assert calls, "the optimizer was used"
assert table["accuracy"].min() > 0.5
