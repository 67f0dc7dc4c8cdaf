# %% [markdown]
# # Learning on a stream
#
# Each day one person arrives, and the learner chooses one of six treatments before it sees what
# they would have cost. One charge covers all days up to a declared horizon, and the learner can be
# saved and resumed in the middle.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np

from discreet import Ledger, PrivateFTRL

rng = np.random.default_rng(7)
horizon, actions = int(5_000 * SIZE), 6
means = np.array([0.0, 0.0, -0.6, 0.0, 0.1, 0.2])  # the third is the cheapest

ledger = Ledger("stream.ledger", epsilon=5.0, delta=1e-6, adaptive=False)
learner = PrivateFTRL(actions, horizon, epsilon=4.0, delta=1e-7, ledger=ledger)
paid, best = [], []
for step in range(horizon):
    costs = np.clip(means + rng.uniform(-0.4, 0.4, size=actions), -1, 1)
    paid.append(costs[learner.predict_one()])
    best.append(costs[2])
    learner = learner.learn_one(costs)
    if step == horizon // 2:  # the process stops, and another one goes on
        learner.save("stream.db")
        learner = PrivateFTRL.resume("stream.db")

# %%
import altair as alt
import pandas as pd

day = np.arange(1, horizon + 1)
table = pd.DataFrame(
    {
        "day": day,
        "learner": np.cumsum(paid) / day,
        "best treatment": np.cumsum(best) / day,
    }
)
table = table.iloc[:: max(1, horizon // 200)].melt(
    "day", var_name="who", value_name="mean cost so far"
)
chart = alt.Chart(table, title="Mean cost so far", width=520, height=260)
chart.mark_line().encode(
    alt.X("day:Q"),
    alt.Y("mean cost so far:Q"),
    alt.Color("who:N", title=None, scale=alt.Scale(range=["#D55E00", "#0072B2"])),
)

# %% [markdown]
# After some hundred days the learner has found the cheapest treatment, with a single charge.

# %%
print(
    f"mean cost {np.mean(paid):.3f}, of the best treatment {np.mean(best):.3f}, charges {len(ledger.history())}"
)
assert len(ledger.history()) == 1
assert np.mean(paid) < np.mean(means)
