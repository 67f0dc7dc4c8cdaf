"""Private rows in files and on Dask: the same votes as in memory, and tasks that are run twice count once."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier

from discreet import Ledger, PrivateTransferClassifier, insecure_noise
from discreet.records.clusters import dask
from discreet.records.clusters.base import WorkersLost, checksum
from discreet.records.clusters.workers import Threads
from discreet.transfer import teachers

N = 3000
NAMES = list("abc")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 3))
    frame = pd.DataFrame(X, columns=NAMES)
    frame["y"] = np.array(["no", "yes"])[(X[:, 0] + 0.5 * rng.normal(size=N) > 0).astype(int)]
    return frame


PUBLIC = np.random.default_rng(4).normal(size=(60, 3))


def model(**parameters):
    defaults = {"n_teachers": 40, "epsilon": 3.0, "delta": 1e-6, "classes": ["no", "yes"], "random_state": 0}
    return PrivateTransferClassifier(DecisionTreeClassifier(max_depth=3), **{**defaults, **parameters})


def fitted(*arguments, aggregator="shares", **options):
    with insecure_noise(5):
        return model(aggregator=aggregator).fit(*arguments, **options)


@pytest.mark.parametrize("aggregator", ["shares", "plurality"])
@pytest.mark.parametrize("place", ["parquet", "dask array", "dask frame", "dask sparse"])
def test_the_same_answers_wherever_the_rows_are(frame, place, aggregator, tmp_path):
    features, labels = frame[NAMES], frame["y"].to_numpy()
    ids = np.arange(N) // 2
    expected = fitted(features.to_numpy(), labels, PUBLIC, groups=ids, aggregator=aggregator)
    options = {"groups": ids, "aggregator": aggregator, "X_public": PUBLIC}
    if place == "parquet":
        frame.to_parquet(tmp_path / "data.parquet", row_group_size=700)
        found = fitted(tmp_path / "data.parquet", target="y", **options)
    elif place == "dask array":
        rows = da.from_array(features.to_numpy(), chunks=(900, 2))
        found = fitted(rows, da.from_array(labels.astype(str), chunks=900), **options)
    elif place == "dask frame":
        options["X_public"] = pd.DataFrame(PUBLIC, columns=NAMES)
        found = fitted(
            dd.from_pandas(features, npartitions=3), dd.from_pandas(frame["y"], npartitions=3), **options
        )
    else:
        rows = da.from_array(features.to_numpy(), chunks=(900, 3)).map_blocks(sp.csr_matrix)
        found = fitted(rows, labels, **options)
    assert np.array_equal(found.labels_, expected.labels_)
    if aggregator == "shares":
        assert np.allclose(found.votes_, expected.votes_, atol=0.01)
    assert found.n_features_in_ == 3
    assert found.privacy_.event == expected.privacy_.event


class Twice(Threads):
    """Workers that lose every result once and compute it again."""

    def kept(self, function, *columns):
        super().kept(function, *columns)
        return super().kept(function, *columns)

    def answers(self, function, *columns):
        super().answers(function, *columns)
        return super().answers(function, *columns)


def test_a_task_that_was_computed_again_counts_once(frame, monkeypatch):
    rows = da.from_array(frame[NAMES].to_numpy(), chunks=(900, 3))
    expected = fitted(rows, frame["y"].to_numpy(), PUBLIC)
    monkeypatch.setattr(dask, "workers", Twice)
    found = fitted(rows, frame["y"].to_numpy(), PUBLIC)
    assert np.array_equal(found.votes_, expected.votes_)


class Changing(Threads):
    """Workers that lost every partition after the charge, and a source that gives other rows now."""

    def kept(self, function, *columns):
        if function is teachers._parted:
            others = [block.values + 1 for block in self.gathered(columns[0])]
            columns = [dask.Noted(rows, checksum(rows)) for rows in others], *columns[1:]
        return super().kept(function, *columns)


class Telling(Threads):
    """Workers that fail and say why."""

    def combined(self, function, *entries):
        return super().combined(lambda *entries: {}["the private row"], *entries)


@pytest.mark.parametrize("workers", [Changing, Telling])
def test_what_goes_wrong_on_a_worker_ends_in_one_message(frame, monkeypatch, workers):
    monkeypatch.setattr(dask, "workers", workers)
    rows = da.from_array(frame[NAMES].to_numpy(), chunks=(900, 3))
    with pytest.raises(WorkersLost) as caught:
        fitted(rows, frame["y"].to_numpy(), PUBLIC)
    assert str(caught.value) == str(WorkersLost())
    assert caught.value.__suppress_context__


def test_what_is_wrong_is_found_free_of_charge(frame, tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-6)
    frame.to_parquet(tmp_path / "data.parquet")
    rows = da.from_array(frame[NAMES].to_numpy(), chunks=(900, 3))
    labels = frame["y"].to_numpy()
    swapped = pd.DataFrame(PUBLIC, columns=["a", "c", "b"])
    for arguments, options, message in [
        ((tmp_path / "data.parquet",), {"X_public": PUBLIC}, "target"),
        ((tmp_path / "data.parquet", labels), {"X_public": PUBLIC, "target": "y"}, "instead of y"),
        ((tmp_path / "data.parquet",), {"X_public": swapped, "target": "y"}, "same order"),
        ((tmp_path / "data.parquet",), {"target": "y"}, "needs public rows"),
        ((rows, labels[:-1], PUBLIC), {}, "one label per row"),
        ((rows, None, PUBLIC), {}, "y is None"),
        ((rows, labels, PUBLIC[:, :2]), {}, "2 columns"),
        ((rows, labels, PUBLIC), {"target": "y"}, "target names a column of a file"),
        ((dd.from_pandas(frame, npartitions=2), labels, np.zeros((5, 4))), {}, "numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(ledger=ledger).fit(*arguments, **options)
    with pytest.raises(ValueError, match="needs public rows"):
        model(label_private=True, ledger=ledger).fit(rows, labels)
    assert len(ledger.history()) == 0
