# %% [markdown]
# # A recommender that stores no user
#
# Item factors are released with noise that hides every user. Recommendations for a user are then
# computed from these factors and that user's own ratings, on the user's device if you like.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np
import scipy.sparse as sp

rng = np.random.default_rng(6)
users, items, per_user = int(15_000 * SIZE), 60, 15
taste, kind = rng.normal(size=(users, 2)), rng.normal(size=(items, 2))
owner = np.repeat(np.arange(users), per_user)
item = np.argsort(rng.uniform(size=(users, items)), axis=1)[:, :per_user].ravel()
stars = np.clip(3 + (taste[owner] * kind[item]).sum(axis=1), 1, 5)
ratings = sp.csr_matrix((stars, (owner, item)), shape=(users, items))

# %%
from discreet import PrivateMatrixCompletion

settings = {
    "rating_bounds": (1, 5),
    "ratings_per_user": per_user,
    "rank": 2,
    "delta": 1e-6,
}
model = PrivateMatrixCompletion(epsilon=3.0, **settings).fit(ratings)
print("\n".join(str(model.privacy_).splitlines()[:6]))

# %% [markdown]
# New users, who were not in the data, rate fifteen items each and ask about the others.

# %%
someone = rng.normal(size=(200, 2))
truth = np.clip(3 + someone @ kind.T, 1, 5)
seen = np.argsort(rng.uniform(size=truth.shape), axis=1)[:, :per_user]
own = sp.csr_matrix(
    (
        np.take_along_axis(truth, seen, 1).ravel(),
        (np.repeat(np.arange(200), per_user), seen.ravel()),
    ),
    shape=truth.shape,
)
unseen = np.ones(truth.shape, dtype=bool)
np.put_along_axis(unseen, seen, False, axis=1)
own_mean = np.take_along_axis(truth, seen, 1).mean(axis=1, keepdims=True)
blind = np.sqrt(np.mean((own_mean - truth)[unseen] ** 2))

# %%
import altair as alt
import pandas as pd

rows = []
for epsilon in (0.5, 1.0, 3.0, 10.0):
    fitted = PrivateMatrixCompletion(epsilon=epsilon, **settings).fit(ratings)
    error = np.sqrt(np.mean((fitted.predict(own) - truth)[unseen] ** 2))
    rows.append({"epsilon": epsilon, "error": error})
table = pd.DataFrame(rows)
chart = alt.Chart(
    table, title="Error on items that a new user has not rated", width=480, height=240
)
chart = chart.mark_line(point=True, color="#0072B2").encode(
    alt.X(
        "epsilon:Q", scale=alt.Scale(type="log"), axis=alt.Axis(values=[0.5, 1, 3, 10])
    ),
    alt.Y("error:Q", title="root mean square error, stars"),
)
rule = alt.Chart(pd.DataFrame({"error": [blind]})).mark_rule(
    color="#D55E00", strokeDash=[6, 4]
)
chart + rule.encode(y="error:Q")

# %% [markdown]
# The dashed line is the error of predicting each user's own mean, the best one can do without the
# ratings of others.

# %%
print(table.round(3).to_string(index=False), f"\nown mean {blind:.3f}")
assert table["error"].iloc[-1] < blind
