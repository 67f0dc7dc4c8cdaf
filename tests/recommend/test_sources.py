"""Ratings in files and on clusters: the same fit, bit for bit, as from a matrix; users whole; nothing left behind."""

import os
import signal
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from discreet import Ledger, PrivacyWarning, PrivateMatrixCompletion, insecure_noise
from discreet.recommend import ratings, sources
from discreet.recommend.methods import METHODS
from discreet.recommend.methods.clicks import IMPLICIT
from discreet.recommend.ratings import Clicks, Ratings, Scale, read
from discreet.records import files
from discreet.records.clusters.base import WorkersLost
from discreet.records.clusters.workers import SummedParts, Threads

N_USERS, N_ITEMS = 400, 12
SCALE = Scale(-1.0, 1.0)


def some_ratings(seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-1, 1, (N_USERS, 2)) @ rng.uniform(-1, 1, (2, N_ITEMS)) / 2
    seen = rng.random(truth.shape) < 0.4
    seen[:, 0] = True  # nobody without a rating, whom a table could not name
    return sp.csr_array((truth[seen], np.nonzero(seen)), shape=truth.shape)


R = some_ratings()


def as_frame(matrix=R):
    """Ratings as a table in which nearly every user's rows are far apart."""
    coo = matrix.tocoo()
    table = pd.DataFrame({"user": coo.coords[0], "item": coo.coords[1], "rating": coo.data})
    return table.sample(frac=1, random_state=0, ignore_index=True)


def fitted(data, method="subspace", **changes):
    settings = {"rating_bounds": (-1, 1), "rank": 3, "items": range(N_ITEMS)} | changes
    with insecure_noise(7):
        return PrivateMatrixCompletion(method, 5.0, 1e-6, **settings).fit(data)


def check_equal(first, second):
    one, other = first.to_arrays(), second.to_arrays()
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    """A file in row groups, batches and blocks so small that every user is cut into many pieces."""
    monkeypatch.setattr(files, "batch_rows", lambda schema, columns: 100)
    monkeypatch.setattr(sources, "_KEEP_BYTES", 1 << 12)
    monkeypatch.setattr(ratings, "_BLOCK_ENTRIES", 97)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "ratings.parquet"

    def write(frame, **options):
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=700, **options)
        return path

    return write


# -- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["subspace", "als", "frank-wolfe"])
def test_a_file_is_fitted_like_a_matrix(parquet, method):
    check_equal(fitted(R, method), fitted(parquet(as_frame()), method))


def test_clicks_from_a_file_need_no_ratings(parquet):
    path = parquet(as_frame()[["user", "item"]])
    check_equal(fitted(R, feedback="implicit"), fitted(path, feedback="implicit"))
    with pytest.raises(ValueError, match="lacks the columns"):
        fitted(path)


@pytest.mark.parametrize("kind", ["int8", "float32", "float64"])
def test_small_ratings_and_text_labels_are_kept_exactly(parquet, kind):
    whole = R.copy()
    whole.data = np.sign(whole.data).round()
    frame = as_frame(whole)
    frame["rating"] = frame["rating"].astype(kind)
    frame["user"] = pd.Categorical("person " + frame["user"].astype(str))
    frame["item"] = frame["item"].map("{:02d}".format)
    names = [f"{j:02d}" for j in range(N_ITEMS)]
    check_equal(fitted(whole, items=names), fitted(parquet(frame), items=names))


def test_rows_are_whole_sorted_and_mapped(parquet, tmp_path):
    doubled = pd.concat([as_frame(), as_frame().assign(rating=0.0)])
    with sources.opened_source(parquet(doubled), SCALE, range(N_ITEMS), duplicates="mean") as (users, items):
        assert users.n_users == N_USERS
        assert users.starts[-1] == R.nnz
        sums = np.bincount(users.items, weights=users.values, minlength=N_ITEMS)
        np.testing.assert_allclose(sums, np.asarray(R.sum(axis=0)).ravel() / 2, atol=1e-12)
        assert ratings.kernels.row_order(users.starts, users.items) == 0
        assert items.tolist() == list(range(N_ITEMS))
        # No folder names the private ratings, so not even a killed process can leave them behind.
        assert [path.name for path in tmp_path.iterdir()] == ["ratings.parquet"]


def test_the_catalog_of_a_file_is_read_with_a_warning(parquet):
    with pytest.warns(PrivacyWarning, match="catalog"):
        model = fitted(parquet(as_frame()), "profile", items=None)
    assert model.items_.tolist() == list(range(N_ITEMS))


def test_no_more_ratings_than_a_block_are_scaled_at_a_time(parquet):
    sizes = []

    def add(block, sums):
        sizes.append(len(block.items))
        sums[0] += len(block.items)

    with sources.opened_source(parquet(as_frame()), SCALE, range(N_ITEMS)) as (users, _):
        assert users.total((1,), add)[0] == R.nnz
    assert max(sizes) <= 97 + N_ITEMS


# -- what is refused, wherever it is ----------------------------------------------------------------------------


def table(**columns):
    return as_frame().head(50).assign(**columns)


BAD = {
    "out of bounds": (table(rating=3.0), {}, "outside the declared range"),
    "not finite": (table(rating=np.nan), {}, "not finite"),
    "twice": (pd.concat([table(), table()]), {}, "more than once"),
    "unknown item": (table(item=99), {}, "outside the catalog"),
    "no user": (table(user=None), {}, "have no user"),
    "no item": (table(item=None), {}, "have no item"),
    "no ratings": (table().iloc[:0], {}, "no ratings|at least one user"),
    "no column": (table().drop(columns="rating"), {}, "lacks the columns"),
    "too many users": (table(), {"neighboring": "add-remove-one", "n_users": 3}, "n_users must be at least"),
    "too many items": (table(), {"items": range(30_000)}, "needs 7 GB"),
}


@pytest.mark.parametrize("place", ["file", "cluster"])
@pytest.mark.parametrize("case", BAD)
def test_bad_ratings_are_refused_before_any_charge(case, place, parquet, tmp_path):
    import dask.dataframe as dd

    frame, changes, message = BAD[case]
    data = parquet(frame) if place == "file" else dd.from_pandas(frame, npartitions=2)
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=1e-3)
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(data, ledger=ledger, **changes)
    assert ledger.history() == []
    assert not list(tmp_path.glob("discreet-*"))


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        fitted(tmp_path / "none.parquet")
    (tmp_path / "x.txt").write_text("user,item,rating\n1,2,3\n")
    with pytest.raises(ValueError, match=r"whose names end in one of \.parquet"):
        fitted(tmp_path / "x.txt")


# -- Dask -------------------------------------------------------------------------------------------------------


def dask_frame(frame=None, partitions=5):
    import dask.dataframe as dd

    return dd.from_pandas(as_frame() if frame is None else frame, npartitions=partitions, sort=False)


def blocks_of_users():
    return [R[:150], R[150:150], R[150:230], R[230:]]


def dask_array(blocks):
    import dask.array as da
    from dask import delayed

    return da.concatenate(
        [
            da.from_delayed(delayed(block), block.shape, dtype=float, meta=sp.csr_matrix((0, 0)))
            for block in blocks
        ]
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_a_dask_frame_like_a_matrix(method):
    check_equal(fitted(R, method), fitted(dask_frame(), method))


@pytest.mark.parametrize("method", IMPLICIT)
def test_clicks_on_dask(method):
    frame = as_frame()[["user", "item"]]
    check_equal(
        fitted(R, method, feedback="implicit"), fitted(dask_frame(frame), method, feedback="implicit")
    )


def test_blocks_of_users_as_an_array_or_a_bag():
    import dask.bag as db

    expected = fitted(R)
    check_equal(expected, fitted(dask_array(blocks_of_users())))
    check_equal(expected, fitted(db.from_sequence(blocks_of_users(), npartitions=2)))


def test_blocks_that_cannot_be_used():
    import dask.array as da
    import dask.bag as db

    with pytest.raises(ValueError, match="whole rows"):
        fitted(da.zeros((10, N_ITEMS), chunks=(5, 5)))
    with pytest.raises(TypeError, match="SciPy sparse"):
        fitted(da.zeros((10, N_ITEMS), chunks=(5, N_ITEMS)))
    with pytest.raises(ValueError, match="different numbers of columns"):
        fitted(db.from_sequence([R[:5], R[:5, :4]], npartitions=2), items=None)
    with pytest.raises(ValueError, match="12 columns"):
        fitted(db.from_sequence([R[:5]], npartitions=1), items=range(5))
    with pytest.raises(ValueError, match="at least one user"):
        fitted(db.from_sequence([R[:0]], npartitions=1))


def test_a_user_spread_over_all_partitions_is_one_user():
    frame = pd.DataFrame({"user": 5, "item": range(N_ITEMS), "rating": 1.0})
    users, _ = sources.opened_collection(dask_frame(frame, 6), SCALE, range(N_ITEMS))
    assert users.n_users == 1

    def longest(block, sums):
        sums[0] += np.diff(block.starts).max(initial=0)
        sums[1] += block.n_users

    assert users.total((2,), longest).tolist() == [N_ITEMS, 1]


def test_a_bucket_depends_on_the_label_only():
    whole = np.array([3, 5, 3])
    expected = sources._buckets(whole, 1000)
    assert expected[0] == expected[2] != expected[1]
    np.testing.assert_array_equal(sources._buckets(whole.astype(np.uint16), 1000), expected)
    texts = pd.Series(["a", "b", "a"])
    np.testing.assert_array_equal(
        sources._buckets(texts, 1000), sources._buckets(texts.astype("category"), 1000)
    )
    np.testing.assert_array_equal(sources._buckets(np.array(["3", 5, " 3"], dtype=object), 1000), expected)
    with pytest.raises(TypeError, match="whole numbers or strings"):
        sources._buckets(np.array([1.5, 2.0]), 1000)


def test_partitions_that_share_users_are_refused():
    sources._check_apart([np.array([1, 2]), np.array([3]), np.array([], dtype=int)])
    with pytest.raises(RuntimeError, match="two partitions"):
        sources._check_apart([np.array([1, 2]), np.array([2])])


def count_and_sum(block, sums):
    """Ratings and users of every item, and everybody."""
    np.add.at(sums[0], block.items, (block.values * 1000).astype(np.int64))
    sums[1] += np.bincount(block.items, minlength=N_ITEMS)
    sums[2] += block.n_users


def test_threads_add_up_to_the_same_sum(monkeypatch):
    whole = read(R, SCALE, None)[0]
    expected = whole.total((3, N_ITEMS), count_and_sum)
    monkeypatch.setattr(ratings, "_BLOCK_ENTRIES", 50)
    for n_threads in (1, 2, 5):
        several = Ratings(whole.starts, whole.items, whole.values, N_ITEMS, SCALE, n_threads)
        np.testing.assert_array_equal(several.total((3, N_ITEMS), count_and_sum), expected)
    nobody = Ratings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), N_ITEMS)
    assert not nobody.total((3, N_ITEMS), count_and_sum).any()


def local_cluster(**options):
    distributed = pytest.importorskip("distributed")
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50, **options
    )


def test_a_cluster_in_this_process_answers_the_same():
    from distributed import Client

    with local_cluster(processes=False) as local, Client(local):
        check_equal(fitted(R), fitted(dask_frame()))
        check_equal(fitted(R, "als"), fitted(dask_array(blocks_of_users()), "als"))
        with pytest.raises(ValueError, match="more than once"):
            fitted(dask_frame(pd.concat([as_frame(), as_frame()])))


@pytest.mark.nightly
def test_a_cluster_that_loses_a_worker_counts_every_user_once():
    from distributed import Client

    expected = read(R, SCALE, None)[0].total((3, N_ITEMS), count_and_sum)
    clicks = read(R, Clicks(), None)[0].total((3, N_ITEMS), count_and_sum)
    with local_cluster(processes=True) as local, Client(local):
        check_equal(fitted(R), fitted(dask_frame()))
        users, _ = sources.opened_collection(dask_frame(), SCALE, range(N_ITEMS))
        np.testing.assert_array_equal(users.total((3, N_ITEMS), count_and_sum), expected)
        os.kill(next(iter(local.workers.values())).pid, signal.SIGKILL)
        np.testing.assert_array_equal(users.total((3, N_ITEMS), count_and_sum), expected)
        np.testing.assert_array_equal(users.as_clicks().total((3, N_ITEMS), count_and_sum), clicks)


def drifting_users():
    """Other ratings whenever they are computed."""
    return [
        sp.csr_matrix((np.random.default_rng().uniform(-1, 1, R.nnz), R.indices, R.indptr), shape=R.shape)
    ]


def test_ratings_that_change_when_they_are_made_again_end_the_fit():
    one, other = (
        sources._Read(read(ratings, SCALE, None)[0], np.empty(0, np.int64)) for ratings in (R, R[::-1])
    )
    asked = Threads()
    for part, expected in ((one, one), (other, other)):
        parts = SummedParts(asked.kept(sources._rows, [part], [expected.checksum]), asked)
        assert parts.total(sources._total, ((3, N_ITEMS), count_and_sum)).any()
    changed = SummedParts([asked.combined(sources._rows, other, one.checksum)], asked)
    with pytest.raises(WorkersLost):
        changed.total(sources._total, ((3, N_ITEMS), count_and_sum))


@pytest.mark.nightly
def test_a_lost_worker_whose_ratings_change_ends_the_fit():
    import dask.bag as db
    from dask import delayed
    from distributed import Client

    with local_cluster(processes=True) as local, Client(local):
        bag = db.from_delayed([delayed(drifting_users, pure=False)() for _ in range(4)])
        users, _ = sources.opened_collection(bag, SCALE, None)
        assert users.total((3, N_ITEMS), count_and_sum).any()
        for worker in list(local.workers.values()):
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkersLost):
            users.total((3, N_ITEMS), count_and_sum)
