# %% [markdown]
# # Data larger than memory
#
# A fit can read a file in passes, block by block, and gives the same model as a fit in memory. The
# same call works on a Parquet file of any size.

# %% hidden
SIZE = globals().get("SIZE", 1)

# %%
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

rng = np.random.default_rng(9)
blocks, rows = 8, int(10_000 * SIZE)
weights = np.array([1.0, -1.0, 0.5, 0.0])
schema = pa.schema([(f"x{j}", pa.float64()) for j in range(4)] + [("y", pa.int64())])
with pq.ParquetWriter("records.parquet", schema) as file:
    for _ in range(blocks):  # never more than one block in memory
        X = rng.normal(size=(rows, 4)) / 3
        y = (X @ weights + 0.2 * rng.normal(size=rows) > 0).astype(np.int64)
        file.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y}))
print(f"{blocks * rows} rows in a file, {rows} in memory")

# %%
from discreet import PrivateLogisticRegression

model = PrivateLogisticRegression(epsilon=0.5, delta=1e-6, classes=[0, 1])
model.fit("records.parquet", target="y")
X = rng.normal(size=(2_000, 4)) / 3
y = (X @ weights + 0.2 * rng.normal(size=2_000) > 0).astype(int)
print(f"accuracy on new rows {model.score(X, y):.3f}")

# %% [markdown]
# The noise does not grow with the number of rows, so at a fixed epsilon the coefficients become
# more accurate with every file that is added.

# %%
import altair as alt
import pandas as pd

points = []
for part in (1, 2, 4, 8):
    pieces = pq.read_table("records.parquet").slice(0, part * rows)
    pq.write_table(pieces, "part.parquet")
    for _ in range(4):
        fitted = PrivateLogisticRegression(0.1, 1e-6, classes=[0, 1]).fit(
            "part.parquet", target="y"
        )
        found = fitted.coef_[0]
        cosine = found @ weights / np.linalg.norm(found) / np.linalg.norm(weights)
        points.append({"rows": part * rows, "cosine": cosine})
table = pd.DataFrame(points)
chart = alt.Chart(
    table,
    title="Direction found and true direction, epsilon 0.1",
    width=480,
    height=240,
)
chart.mark_circle(size=70, color="#0072B2").encode(
    alt.X(
        "rows:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=[rows, 2 * rows, 4 * rows, 8 * rows]),
    ),
    alt.Y("cosine:Q", scale=alt.Scale(zero=False)),
)

# %%
mean = table.groupby("rows")["cosine"].mean()
print(mean.round(3).to_string())
assert mean.iloc[-1] > 0.9
assert model.score(X, y) > 0.8
