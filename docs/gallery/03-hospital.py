# %% [markdown]
# # Several visits per patient
#
# A guarantee for one row says little to a patient with eight rows. Here `groups=` says which visits
# belong to which patient, and at most two visits of each patient are used.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np


def visits(n_patients, rng):
    count = 1 + rng.poisson(np.where(rng.uniform(size=n_patients) < 0.1, 6.0, 0.5))
    patient = np.repeat(np.arange(n_patients), count)
    health = rng.normal(size=(n_patients, 4))[patient] + 0.3 * rng.normal(
        size=(len(patient), 4)
    )
    chance = 1 / (1 + np.exp(-2 * health @ [1.0, -0.8, 0.5, 0.0]))
    return health / 3, (rng.uniform(size=len(patient)) < chance).astype(int), patient


rng = np.random.default_rng(3)
X, y, patient = visits(int(12_000 * SIZE), rng)
X_new, y_new, _ = visits(3_000, rng)
most = np.bincount(patient).max()
print(f"{len(X)} visits of {patient.max() + 1} patients, at most {most} of one")

# %% [markdown]
# Without `groups=`, only single visits are protected, and the statement says what that means for
# somebody with many visits: epsilon counts once for every visit.

# %%
import pandas as pd

from discreet import PrivateLogisticRegression

rows = []
for epsilon in (0.3, 1.0, 3.0):
    for _ in range(5):
        per_row = PrivateLogisticRegression(epsilon, 1e-6, classes=[0, 1]).fit(X, y)
        people = PrivateLogisticRegression(
            epsilon, 1e-6, classes=[0, 1], max_rows_per_group=2
        )
        people.fit(X, y, groups=patient)
        rows.append(
            {
                "epsilon": epsilon,
                "protects": "a visit",
                "accuracy": per_row.score(X_new, y_new),
            }
        )
        rows.append(
            {
                "epsilon": epsilon,
                "protects": "a patient",
                "accuracy": people.score(X_new, y_new),
            }
        )
table = pd.DataFrame(rows)
print(people.privacy_.guarantee)

# %%
import altair as alt

chart = alt.Chart(
    table, title="Accuracy on new patients, five fits each", width=480, height=260
)
chart.mark_circle(size=70).encode(
    alt.X("epsilon:O"),
    alt.XOffset("protects:N"),
    alt.Y("accuracy:Q", scale=alt.Scale(zero=False)),
    alt.Color("protects:N", scale=alt.Scale(range=["#0072B2", "#D55E00"])),
)

# %% [markdown]
# At an epsilon of 1, protecting people instead of visits costs little accuracy here. In return, a
# patient with many visits has the same guarantee as everybody else.

# %%
mean = table.pivot_table(index="epsilon", columns="protects", values="accuracy")
print(mean.round(3).to_string())
assert people.privacy_.guarantee.unit == "user"
assert mean.loc[3.0, "a patient"] > max(y_new.mean(), 1 - y_new.mean())
