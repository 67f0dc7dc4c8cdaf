"""Rows of a file in several parts: no release moves further than declared, whatever one row holds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet import PrivateLogisticRegression, PrivateRidge
from discreet.audit.replay import replay

N, P = 600, 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, P))
Y = (X[:, 0] > 0).astype(int)
FIRST = 250  # a row in the middle part
ROWS = {
    "zeros": [0.0, 0.0, 0.0],
    "far": [1e80, -1e80, 1e80],
    "tiny": [5e-324, 0.0, -0.0],
    "absurd": [1e300, 1.0, 1.0],
    "missing": [np.nan, 1.0, 1.0],
}


@pytest.mark.parametrize("change", ROWS)
@pytest.mark.parametrize(
    "solver", ["objective", "noisy-gd", "newton", "output", "discriminant", "statistics"]
)
def test_replays_of_fits_on_a_file_stay_within_the_declared_distance(solver, change, tmp_path):
    def program(data):
        rows, labels = data
        path = tmp_path / "rows.parquet"
        columns = {f"x{number}": column for number, column in enumerate(rows.T)}
        pq.write_table(pa.table({**columns, "y": labels}), path, row_group_size=200)
        shared = {"epsilon": 1.0, "delta": 1e-6, "solver": solver, "bad_rows": "null"}
        if solver == "statistics":
            model = PrivateRidge(target_bounds=(0, 1), **shared)
        else:
            model = PrivateLogisticRegression(classes=[0, 1], **shared)
        model.fit(path, target="y")
        return np.append(model.coef_, model.intercept_)

    rows, labels = X.copy(), Y.copy()
    rows[FIRST], labels[FIRST] = ROWS[change], 1 - Y[FIRST]
    found = replay(program, (X, Y), (rows, labels))
    assert found.passed, str(found)
    assert bool(found.distances) == (solver != "objective")  # whose noise is drawn before it meets the data
