# %% [markdown]
# # An additive model and its shapes
#
# Risk is high at both ends of body temperature, which no straight line can express. An additive
# model releases one curve (*shape*) per column, and a doctor can read it.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np
import pandas as pd

rng = np.random.default_rng(13)
n = int(20_000 * max(SIZE, 0.4))
table = pd.DataFrame(
    {
        "temperature": np.clip(rng.normal(37.2, 1.2, n), 33, 42),
        "age": rng.uniform(18, 95, n),
        "ward": rng.choice(["general", "surgery", "intensive"], n, p=[0.6, 0.3, 0.1]),
    }
)
risk = 0.9 * np.abs(table["temperature"] - 37.2) + 0.03 * (table["age"] - 60) - 1.2
risk += table["ward"].map({"general": 0.0, "surgery": 0.4, "intensive": 1.8})
table["complication"] = np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "yes", "no")

# %% [markdown]
# The schema is public: the range of a thermometer, the range of ages, the list of wards. One charge
# covers both the bins and the shapes.

# %%
from discreet import (
    Categorical,
    Numeric,
    PrivateAdditiveClassifier,
    PrivateLogisticRegression,
    Schema,
    Target,
)

schema = Schema(
    {
        "temperature": Numeric(33, 42),
        "age": Numeric(18, 95),
        "ward": Categorical(("general", "surgery", "intensive")),
    },
    target=Target("complication", ("no", "yes")),
)
model = PrivateAdditiveClassifier(1.0, 1e-6, schema=schema, pairs=0).fit(table)
print(pd.DataFrame(model.shapes_["ward"]).round(2).to_string(index=False))

# %%
model.plot(["temperature", "age"]).properties(
    title="What temperature and age add, as released"
)

# %% [markdown]
# The model has found the valley: the middle of the range adds less to the risk than both ends, by far
# more than the shaded noise bands are high. The gray counts show where there are hardly any people,
# and where the shape therefore says little.

# %%
shape = pd.DataFrame(model.shapes_["temperature"]).dropna()
middle = shape[(shape["lower"] < 37.2) & (shape["upper"] > 37.2)]["value"].mean()
cold, hot = shape["value"].iloc[0], shape["value"].iloc[-1]
print(f"cold {cold:+.2f}, middle {middle:+.2f}, hot {hot:+.2f}")
assert middle < min(cold, hot)

# %% [markdown]
# For comparison, a linear model with the same budget has the same slope at every temperature.

# %%
from discreet import SchemaEncoder
from sklearn.pipeline import make_pipeline

line = make_pipeline(
    SchemaEncoder(schema),
    PrivateLogisticRegression(1.0, 1e-6, classes=["no", "yes"], feature_bound=2),
)
line.fit(table, table["complication"])
accuracies = {
    "additive": model.score(table, table["complication"]),
    "linear": line.score(table, table["complication"]),
}
print({name: round(float(accuracy), 3) for name, accuracy in accuracies.items()})
assert accuracies["additive"] > accuracies["linear"]

# %% [markdown]
# These accuracies are computed on the invented table without noise. With real people they would be
# a release of their own. `card.to_html(model, "model.html")` writes the page with all shapes.
