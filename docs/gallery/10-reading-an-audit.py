# %% [markdown]
# # Reading an audit
#
# An audit fits the same configuration many times on two worst-case data sets that differ in one
# record, and measures how well the results can be told apart. It can refute a privacy claim, but
# never prove one.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import subprocess
import sys

runs = str(int(300 * max(SIZE, 0.4)))
command = [
    "audit",
    "logistic",
    "--epsilon",
    "1",
    "--delta",
    "0.01",
    "--runs",
    runs,
    "--twin",
]
report = subprocess.run(
    [sys.executable, "-m", "discreet", *command], capture_output=True, text=True
)
print(report.stdout)

# %% [markdown]
# How to read this: the *claim* is the epsilon that the model guarantees. The *bound* is what the
# attack has shown: with the stated confidence, epsilon is at least that large. A bound above the
# claim refutes the claim. The *twin* is the same model with half of the noise. If the attack does
# not even catch the twin, it had too little power, and its result means nothing.
#
# With so few runs the bound for the model itself is low, but they are enough to catch the twin. The
# default of 2,000 runs shows more. The page on [audits](../audit.md) explains how the whole library
# is attacked.
#
# The attack reduces each fit to one number. The more the histograms of these numbers overlap for
# the two data sets, the harder they are to tell apart. For a Gaussian mechanism of the same
# strength they look like this:

# %%
import altair as alt
import numpy as np
import pandas as pd

from scipy.optimize import brentq
from scipy.stats import norm

rng = np.random.default_rng(10)


def delta(mu, epsilon=1.0):
    """The exact delta of a Gaussian mechanism whose mean moves by mu standard deviations."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(
        -mu / 2 - epsilon / mu
    )


mu = brentq(lambda mu: delta(mu) - 0.01, 0.1, 2.0)  # epsilon 1 at delta 0.01
scores = pd.DataFrame(
    {
        "score": np.concatenate([rng.normal(0, 1, 2_000), rng.normal(mu, 1, 2_000)]),
        "data": ["without the record"] * 2_000 + ["with the record"] * 2_000,
    }
)
chart = alt.Chart(
    scores, title="What the attacker sees", width=520, height=240
).mark_area(opacity=0.5, interpolate="step")
chart.encode(
    alt.X("score:Q", bin=alt.Bin(maxbins=50)),
    alt.Y("count()", stack=None, title="fits"),
    alt.Color("data:N", title=None, scale=alt.Scale(range=["#0072B2", "#D55E00"])),
)

# %% [markdown]
# The best possible test, a threshold, is right only a little more often than a coin flip. This is
# what the guarantee means: no attack can do better.

# %%
right = (
    np.mean(rng.normal(0, 1, 100_000) < mu / 2)
    + np.mean(rng.normal(mu, 1, 100_000) > mu / 2)
) / 2
limit = (np.e + 0.01) / (np.e + 1)
print(
    f"best guess right in {right:.1%} of all cases; epsilon 1 and delta 0.01 allow {limit:.1%}"
)
assert 0.5 < right < limit
