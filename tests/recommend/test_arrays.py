"""A fitted recommender as arrays and back, bit by bit; damaged arrays are refused."""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet import PrivateMatrixCompletion
from discreet.recommend.methods import METHODS
from discreet.recommend.methods.clicks import IMPLICIT

RNG = np.random.default_rng(0)
SEEN = RNG.random((200, 12)) < 0.4
ROWS = sp.csr_array((RNG.uniform(-1, 1, int(SEEN.sum())), np.nonzero(SEEN)), shape=SEEN.shape)
NAMES = [f"item {j}" for j in range(12)]


def fitted(method="subspace", feedback="explicit"):
    model = PrivateMatrixCompletion(
        method, 5.0, 1e-6, rank=2, rating_bounds=(-1, 1), items=NAMES, feedback=feedback
    )
    return model.fit(ROWS)


@pytest.mark.parametrize(
    ("method", "feedback"),
    [*((method, "explicit") for method in METHODS), *((method, "implicit") for method in IMPLICIT)],
)
def test_a_file_of_arrays_predicts_the_same_bits(method, feedback, tmp_path):
    model = fitted(method, feedback)
    np.savez(tmp_path / "model.npz", **model.to_arrays())
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        again = PrivateMatrixCompletion.from_arrays(file, model.privacy_, **model.get_params())
    assert np.array_equal(model.predict(ROWS[:9]), again.predict(ROWS[:9]))
    assert again.recommend(ROWS[[0]], 3)[0].tolist() == model.recommend(ROWS[[0]], 3)[0].tolist()
    assert again.method_ == method
    assert str(again.privacy_) == str(model.privacy_)
    assert all(200 not in array.shape for array in model.to_arrays().values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", np.asarray("os.system")),
        ("base", np.zeros(11)),
        ("features", np.full((12, 3), np.nan)),
        ("prior", np.zeros((2, 2))),
        ("items", np.asarray(NAMES)[:5]),
        ("items", np.asarray(NAMES, dtype=object)),
        ("features", np.asarray("text")),
        ("base", None),
    ],
)
def test_damaged_arrays_are_refused(name, value):
    model = fitted()
    arrays = model.to_arrays() | {name: value}
    if value is None:
        del arrays[name]
    with pytest.raises(ValueError, match=r"arrays|shape|catalog"):
        PrivateMatrixCompletion.from_arrays(arrays, model.privacy_, **model.get_params())


def test_labels_of_mixed_kinds_cannot_be_written():
    model = fitted()
    model.items_ = np.array([1, "a"] * 6, dtype=object)
    with pytest.raises(ValueError, match="mixed kinds"):
        model.to_arrays()
