# %% [markdown]
# # A LASSO on text
#
# Which of two thousand words affect a rating? Most coefficients are zero, and the error of the
# private LASSO grows only slowly with the number of words.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np
import scipy.sparse as sp

rng = np.random.default_rng(14)
n, p = int(50_000 * max(SIZE, 0.4)), 2_000
effects = {"refund": -1.6, "broken": -1.3, "perfect": 1.2, "love": 0.9}
words = np.array([*effects, *(f"word{k}" for k in range(p - len(effects)))])
used = np.concatenate([[0.15, 0.15, 0.2, 0.2], np.full(p - 4, 0.01)])
columns = [np.flatnonzero(rng.random(n) < share) for share in used]
X = sp.csr_matrix(
    (
        np.ones(sum(map(len, columns))),
        (
            np.concatenate(columns),
            np.repeat(np.arange(p), [len(rows) for rows in columns]),
        ),
    ),
    shape=(n, p),
)
stars = np.clip(
    3.3 + X[:, :4] @ np.array(list(effects.values())) + 0.3 * rng.normal(size=n), 1, 5
)

# %% [markdown]
# A word occurs or it does not, so entries are at most 1, and ratings lie between 1 and 5. Both
# bounds are public. Each step chooses one of the 2,000 columns with noise, and the error of this
# choice grows only with the logarithm of their number. The matrix stays sparse.

# %%
from discreet import PrivateLasso

model = PrivateLasso(1.0, 1e-6, target_bounds=(1, 5), l1_radius=3.0).fit(X, stars)
print(model.privacy_.mechanism)
print(f"{np.count_nonzero(model.coef_)} of {p} words have a coefficient")

# %%
import altair as alt
import pandas as pd

largest = np.argsort(-np.abs(model.coef_))[:6]
shown = pd.DataFrame({"word": words[largest], "stars": model.coef_[largest].round(3)})
shown["in truth"] = [effects.get(word, 0.0) for word in shown["word"]]
print(shown.to_string(index=False))
chart = alt.Chart(
    shown,
    title="The largest released coefficients, and the truth",
    width=420,
    height=220,
)
bars = chart.mark_bar(color="#0072B2").encode(
    alt.X("stars:Q"), alt.Y("word:N", sort=None, title=None)
)
truth = chart.mark_tick(color="#D55E00", thickness=3).encode(
    alt.X("in truth:Q"), alt.Y("word:N", sort=None)
)
(bars + truth).properties(
    title="The largest released coefficients (bars) and the truth (ticks)"
)

# %% [markdown]
# The L1 ball shrinks coefficients, as every LASSO does, but the words that matter are found, with
# the right signs.

# %%
found = dict(zip(words[largest[:3]], model.coef_[largest[:3]], strict=True))
assert set(found) <= set(effects)
assert all(np.sign(value) == np.sign(effects[word]) for word, value in found.items())
