# %% [markdown]
# # From a raw table to a certified model
#
# A table with numbers, categories and missing cells becomes a model file that anybody can check.
# Ranges and categories are declared in a schema, so nothing is learned from the records before the
# budget is charged.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np
import pandas as pd

rng = np.random.default_rng(2)
n = int(15_000 * SIZE)
table = pd.DataFrame(
    {
        "age": rng.integers(18, 95, n).astype(float),
        "income": rng.lognormal(10.2, 0.5, n),
        "region": rng.choice(["north", "south", "west"], n),
        "smoker": rng.choice(["no", "yes"], n, p=[0.75, 0.25]),
    }
)
table.loc[rng.uniform(size=n) < 0.05, "age"] = np.nan
score = (
    0.05 * (table["age"].fillna(50) - 50)
    + 1.5 * (table["smoker"] == "yes")
    - 0.6 * (table["region"] == "west")
)
claim = np.where(score + rng.logistic(size=n) > 0.4, "yes", "no")
print(table.head(4).to_string())

# %%
from sklearn.pipeline import make_pipeline

from discreet import (
    Categorical,
    Ledger,
    Numeric,
    PrivateLogisticRegression,
    Schema,
    SchemaEncoder,
)

schema = Schema(
    {
        "age": Numeric(18, 100),
        "income": Numeric(0, 150_000),
        "region": Categorical(["north", "south", "west"]),
        "smoker": Categorical(["no", "yes"]),
    }
)
ledger = Ledger("claims.ledger", epsilon=2.0, delta=1e-6)
classifier = PrivateLogisticRegression(1.0, classes=["no", "yes"], ledger=ledger)
pipe = make_pipeline(SchemaEncoder(schema), classifier).fit(table, claim)
print(
    f"accuracy on the training rows, for our eyes only: {pipe.score(table, claim):.3f}"
)

# %% [markdown]
# The fitted model is saved as a text file, together with its privacy statement and the number of
# its charge in the ledger. Whoever has the file and the ledger can check that they belong together.

# %%
from discreet import card

fitted = pipe[-1]
card.save(fitted, "model.json")
print(card.verify("model.json", ledger=ledger))

# %%
import altair as alt

names = list(pipe[0].get_feature_names_out())
coefficients = pd.DataFrame({"column": names, "coefficient": fitted.coef_[0]})
chart = alt.Chart(
    coefficients, title="What the model learned", width=460, height=220
).mark_bar(color="#0072B2")
chart.encode(alt.X("coefficient:Q"), alt.Y("column:N", sort=names, title=None))

# %% [markdown]
# Smokers and older people claim more often. The two coefficients can be compared, because the
# schema scales both columns by their declared ranges.

# %%
learned = dict(zip(names, fitted.coef_[0], strict=True))
smoker = [
    value for name, value in learned.items() if "smoker" in name and "yes" in name
]
print({name: round(float(value), 2) for name, value in learned.items()})
assert max(smoker) > 0
assert len(ledger.history()) == 1
