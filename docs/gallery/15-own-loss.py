# %% [markdown]
# # A loss of your own
#
# A loss is a class with its derivatives and the constants that the privacy proofs need. Every
# solver whose proof covers these constants accepts it. The example is log cosh, which limits the
# influence of wrong targets.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %% [markdown]
# You vouch for the constants. `lipschitz` bounds the derivative, and thereby how far one record can
# move a gradient. If it is too small, the guarantee is false.

# %%
from dataclasses import dataclass

import numpy as np

from discreet.losses.base import EXP_ULPS, Loss, floats


@dataclass(frozen=True)
class LogCosh(Loss):
    """w log cosh((t - y) / w): a parabola within about w, a line beyond."""

    width: float = 1.0
    lipschitz = 1.0  # f' = tanh((t - y) / w)
    evaluation_error = EXP_ULPS + 3.0  # of tanh, of t - y and of the division
    proved_for = frozenset({"convex"})

    @property
    def smoothness(self):  # f'' = (1 - tanh^2) / w
        return 1.0 / self.width

    def valid_labels(self, y):
        return np.abs(floats(y)[0]) <= 2.0**900

    def value(self, y, raw_prediction):
        size = np.abs(np.subtract(raw_prediction, y)) / self.width
        return self.width * (size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0))

    def derivative(self, y, raw_prediction):
        return np.tanh(np.subtract(raw_prediction, y) / self.width)

    def second_derivative(self, y, raw_prediction):
        return (1.0 - np.square(self.derivative(y, raw_prediction))) / self.width


# %% [markdown]
# Before anything private runs, we check that the derivatives belong to the loss and that the
# constants hold.

# %%
loss, y0 = LogCosh(0.5), np.zeros(801)
t = np.linspace(-8, 8, 801)
slope = (loss.value(y0, t + 1e-6) - loss.value(y0, t - 1e-6)) / 2e-6
assert np.allclose(slope, loss.derivative(y0, t), atol=1e-8)
assert np.abs(loss.derivative(y0, t)).max() <= loss.lipschitz
assert loss.second_derivative(y0, t).max() <= loss.smoothness

# %% [markdown]
# `PrivateERM` minimizes any loss. In this data an eighth of the targets is wrong. The loss grows
# only linearly for errors larger than about 1. `label_bound` is a public number, the largest target
# that is possible.

# %%
from discreet import PrivateERM

rng = np.random.default_rng(15)
n = int(30_000 * SIZE)
X = rng.uniform(-0.7, 0.7, size=(n, 2))
truth = X @ [2.0, -1.0]
y = truth + 0.1 * rng.normal(size=n)
y[: n // 8] = 20.0  # an eighth of the targets was entered wrongly

mine = PrivateERM(
    LogCosh(1.0),
    epsilon=1.0,
    delta=1e-6,
    feature_bound=1.5,
    label_bound=20.0,
    l2=1e-3,
    solver="objective",
)
print(mine.plan(n_samples=n, n_features=2))

# %%
import altair as alt
import pandas as pd

from discreet import PrivateRidge

rows = []
for name, model in {
    "log cosh": mine,
    "least squares": PrivateRidge(
        1.0, 1e-6, target_bounds=(-20, 20), feature_bound=1.5
    ),
}.items():
    for _ in range(5):
        error = np.sqrt(np.mean((model.fit(X, y).predict(X) - truth) ** 2))
        rows.append({"loss": name, "error": float(error)})
table = pd.DataFrame(rows)
chart = alt.Chart(
    table,
    title="Error of predictions with wrong targets, five fits each",
    width=460,
    height=120,
)
chart.mark_circle(size=80, color="#0072B2").encode(
    alt.X("error:Q", title="root mean square error"), alt.Y("loss:N", title=None)
)

# %% [markdown]
# Before you rely on a loss, add it to `tests/contracts/test_loss.py` in a checkout, whose tests
# check every constant. The statement of a model with your own loss says that these constants are
# your assumption.

# %%
mean = table.groupby("loss")["error"].mean()
print(mean.round(3).to_string())
assert mean["log cosh"] < mean["least squares"]
