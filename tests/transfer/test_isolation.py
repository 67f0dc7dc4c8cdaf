"""A chunk's model is a function of its chunk, of public data and of its own seed, whatever generators it draws from."""

import random
import threading
from contextlib import contextmanager, nullcontext

import dask.array as da
import joblib
import numpy as np
import pytest
from scipy.stats import uniform
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest, mutual_info_classif
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from discreet import PrivateLabeler, PrivateTransferClassifier, PrivateTransferRegressor
from discreet.audit.replay import replay
from discreet.transfer import PrivateQueries, base, regressor, teachers
from discreet.transfer.subsample import subsample_and_aggregate
from discreet.transfer.teachers import isolated, seeded

N_TEACHERS = 6
CHANGED = 2  # the teacher whose record is exchanged
SIZE = 24
CLASSES = np.array([0, 1])
CHUNKS = np.repeat(np.arange(N_TEACHERS), SIZE)
QUERIES = np.random.default_rng(9).normal(size=(60, 3))


class GlobalFeatures(ClassifierMixin, BaseEstimator):
    """The nearer mean along a random direction, with NumPy's and Python's global generators."""

    def fit(self, X, y):
        self.direction_ = np.random.standard_normal(X.shape[1])
        self.share_ = random.random()
        self.means_ = [float((X[y == label] @ self.direction_).mean()) for label in (0, 1)]
        return self

    def predict(self, X):
        low, high = self.means_
        noisy = X @ self.direction_ + np.random.uniform(-0.1, 0.1, size=len(X))
        return ((noisy > low + self.share_ * (high - low)) == (high > low)).astype(int)


class GlobalLine(RegressorMixin, BaseEstimator):
    """Predicts a direction from NumPy's global generator; draws as often as its chunk says."""

    def fit(self, X, y):
        np.random.standard_normal(int(np.sum(y > 0.5)))
        self.weights_ = np.random.standard_normal(X.shape[1])
        return self

    def predict(self, X):
        return X @ self.weights_ + random.random()


def folds(seed=None):
    return StratifiedKFold(2, shuffle=True, random_state=seed)


CLASSIFIERS = {
    "global generators": GlobalFeatures(),
    "tree": DecisionTreeClassifier(max_features=1),
    "extra trees": ExtraTreesClassifier(5),
    "forest": RandomForestClassifier(5, n_jobs=2),
    "boosting": GradientBoostingClassifier(n_estimators=5, subsample=0.5),
    "histograms": HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3),
    "adaboost": AdaBoostClassifier(n_estimators=5),
    "bagging": BaggingClassifier(DecisionTreeClassifier(max_features=1), 5),
    "bagged neighbors": BaggingClassifier(KNeighborsClassifier(3), 5, max_samples=0.5),
    "sgd": SGDClassifier(loss="log_loss", max_iter=20),
    "perceptron": MLPClassifier((4,), max_iter=20),
    "svc": SVC(probability=True) if "probability" in SVC().get_params() else SVC(),
    "neighbors": KNeighborsClassifier(3),
    "bayes": GaussianNB(),
    "calibrated": CalibratedClassifierCV(DecisionTreeClassifier(max_features=1), cv=folds()),
    "calibrated by a generator": CalibratedClassifierCV(
        DecisionTreeClassifier(max_features=1), cv=folds(np.random.RandomState(0))
    ),
    "grid": GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 3, 5]}, cv=folds(), n_jobs=2),
    "random search": RandomizedSearchCV(
        LogisticRegression(), {"C": uniform(0.01, 10)}, n_iter=3, cv=ShuffleSplit(2, test_size=0.5)
    ),
    "repeated folds": GridSearchCV(
        DecisionTreeClassifier(), {"max_depth": [1, 3]}, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=2)
    ),
    "pipeline": make_pipeline(StandardScaler(), PCA(2, svd_solver="randomized"), LogisticRegression()),
    "kernel pipeline": make_pipeline(RBFSampler(n_components=5), SGDClassifier(max_iter=20)),
    "selected features": make_pipeline(SelectKBest(mutual_info_classif, k=2), DecisionTreeClassifier()),
    "quantiles": make_pipeline(
        QuantileTransformer(n_quantiles=5, subsample=10), Nystroem(n_components=5), LogisticRegression()
    ),
    "stacking": StackingClassifier(
        [("tree", DecisionTreeClassifier(max_features=1)), ("nearest", KNeighborsClassifier(3))], cv=folds()
    ),
    "voting": VotingClassifier(
        [("tree", DecisionTreeClassifier(max_features=1)), ("own", GlobalFeatures())], voting="hard"
    ),
}
REGRESSORS = {
    "global generators": GlobalLine(),
    "ridge": Ridge(),
    "tree": DecisionTreeRegressor(max_features=1),
    "forest": RandomForestRegressor(5),
    "bagging": BaggingRegressor(DecisionTreeRegressor(), 5),
    "sgd": SGDRegressor(max_iter=20),
    "perceptron": MLPRegressor((4,), max_iter=20),
    "neighbors": KNeighborsRegressor(3),
    "grid": GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [1, 3]}, cv=KFold(2, shuffle=True)),
}
MODES = {
    "one after the other": (None, nullcontext),
    "processes": (2, nullcontext),
    "threads": (2, lambda: joblib.parallel_config(backend="threading")),
}


def records():
    X = np.random.default_rng(0).normal(size=(N_TEACHERS * SIZE, 3))
    codes = (X[:, 0] > 0).astype(np.int64)
    first = CHANGED * SIZE
    codes[first : first + SIZE] = 0
    codes[first] = 1  # the only one of its class in its chunk
    return X, codes


def neighbors():
    """Neighbors of the records: a chunk left with one class, one on which models fail, one that differs by a row."""
    X, codes = records()
    first = CHANGED * SIZE
    constant, failing, moved = codes.copy(), X.copy(), X.copy()
    constant[first], failing[first], moved[first] = 0, np.nan, -X[first]
    return {"one class": (X, constant), "failing": (failing, codes), "row": (moved, codes)}


def seed_everything():
    np.random.seed(0)
    random.seed(0)


def opinions(estimator, X, codes, mode):
    n_jobs, backend = MODES[mode]
    seed_everything()
    with backend():
        poll = teachers.Poll(estimator, None, CLASSES, N_TEACHERS, np.random.SeedSequence(3))
        found = teachers.train_all(poll, X, codes, CHUNKS, n_jobs)
    return [(teacher.vote(QUERIES, CLASSES), teacher.opinion(QUERIES, CLASSES)) for teacher in found]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_record_changes_no_teacher_but_its_own(name, mode):
    expected = opinions(CLASSIFIERS[name], *records(), mode)
    for change, data in neighbors().items():
        found = opinions(CLASSIFIERS[name], *data, mode)
        for number in set(range(N_TEACHERS)) - {CHANGED}:
            for before, after in zip(expected[number], found[number], strict=True):
                assert np.array_equal(before, after), (change, number)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_record_moves_every_mean_by_one_prediction(name, mode):
    """The steps of one teacher are between 0 and the width, so a sum moves by at most the width."""
    plan = PrivateTransferRegressor(REGRESSORS[name], (0.0, 1.0), n_teachers=N_TEACHERS, delta=1e-6).plan(
        len(CHUNKS), len(QUERIES)
    )
    n_jobs, backend = MODES[mode]

    def sums(X, codes):
        inputs = base.Inputs(X, codes, QUERIES, len(X))
        seed_everything()
        with backend():
            return regressor._sums(
                REGRESSORS[name], inputs, codes.astype(float), CHUNKS, plan, np.random.SeedSequence(3), n_jobs
            )

    expected = sums(*records())
    for change, data in neighbors().items():
        assert np.abs(sums(*data) - expected).max() <= regressor._STEPS, change


def few_positives(n_teachers=60, size=20):
    """Rows, labels of which few are positive, and chunks: one label decides whether a chunk trains a model at all."""
    rng = np.random.default_rng(1)
    n = n_teachers * size
    return rng.normal(size=(n, 3)), (rng.random(n) < 0.04).astype(np.int64), rng.integers(n_teachers, size=n)


def without(codes, place):
    other = codes.copy()
    other[place] = 0
    return other


@pytest.mark.parametrize("opinion", [False, True])
def test_one_label_moves_one_vote_after_a_seeded_generator(opinion):
    """The attack: the chunks after one that is left with a single class must not take over its draws."""
    X, codes, chunks = few_positives()
    counts = np.bincount(chunks[codes == 1], minlength=60)
    alone = np.flatnonzero((codes == 1) & (chunks == np.flatnonzero(counts == 1)[0]))[0]

    def votes(codes):
        seed_everything()
        poll = teachers.Poll(GlobalFeatures(), QUERIES, CLASSES, 60, np.random.SeedSequence(3), opinion)
        return teachers.collect_votes(poll, X, codes, chunks)

    moved = votes(codes).astype(np.int64) - votes(without(codes, alone)).astype(np.int64)
    if opinion:
        longest = teachers.STEPS**2 * len(QUERIES) * (1 - 1 / len(CLASSES))
        assert (moved**2).sum() <= 4 * longest
    else:
        assert np.abs(moved).sum(axis=1).max() <= 2


@pytest.mark.parametrize("place", ["memory", "threads", "dask"])
def test_replays_of_whole_fits_stay_within_the_declared_distance(place):
    X, codes, _ = few_positives()

    def program(data):
        rows, labels = data
        seed_everything()
        model = PrivateTransferClassifier(
            GlobalFeatures(),
            GaussianNB(),
            60,
            aggregator="shares",
            delta=1e-6,
            classes=[0, 1],
            n_jobs=2 if place == "threads" else None,
            random_state=0,
        )
        with joblib.parallel_config(backend="threading") if place == "threads" else nullcontext():
            model.fit(da.from_array(rows, chunks=(500, 3)) if place == "dask" else rows, labels, QUERIES)
        return model.votes_

    for positive in np.flatnonzero(codes)[:3]:
        found = replay(program, (X, codes), (X, without(codes, positive)))
        assert found.passed, str(found)


def test_a_function_of_chunks_draws_from_generators_of_its_chunk():
    rows = np.zeros((600, 1))
    marked = rows.copy()
    marked[0] = 1.0

    def program(rows):
        seed_everything()
        answers = []

        def drawn(X):
            np.random.random(int(X.sum()))
            answers.append((X.sum(), np.random.random(), random.random()))
            return 0

        subsample_and_aggregate(drawn, rows, [0, 1], n_chunks=20, epsilon=1.0, delta=1e-6, random_state=5)
        return answers

    without, with_mark = program(rows), program(marked)
    assert len({draws[1:] for draws in without}) == len(without)  # each chunk has a seed of its own
    assert sum(first != second for first, second in zip(without, with_mark, strict=True)) <= 1


class Panic(BaseException):
    """No `Exception`, as the panics of libraries in Rust are not, polars and tokenizers among them."""


class Ends(ClassifierMixin, RegressorMixin, BaseEstimator):
    """Ends the program if its chunk holds a large number: when it is trained, or when it is asked."""

    def __init__(self, ending, asked):
        self.ending, self.asked = ending, asked

    def fit(self, X, y):
        self.marked_ = bool(X.max() > 90)
        if self.marked_ and not self.asked:
            raise self.ending(X.max())
        return self

    def predict(self, X):
        if self.marked_ and self.asked:
            raise self.ending("asked")
        return np.zeros(len(X), dtype=int)


def answered(ending, asked, rows):
    """Everything that runs code of others on chunks."""

    def question(X):
        Ends(ending, asked).fit(X, None).predict(X)
        return 0

    yield lambda: subsample_and_aggregate(question, rows, [0, 1], n_chunks=20, epsilon=1.0, delta=1e-6)
    yield lambda: PrivateQueries(2, delta=1e-6).fit(rows).ask(question, [0, 1])
    labels = np.arange(len(rows)) % 2
    for aggregator in ("plurality", "shares"):
        sizes = {"n_teachers": 10, "aggregator": aggregator, "classes": [0, 1], "delta": 1e-6}
        model = PrivateTransferClassifier(Ends(ending, asked), student=GaussianNB(), **sizes)
        yield lambda model=model: model.fit(rows, labels, QUERIES)
    line = PrivateTransferRegressor(
        Ends(ending, asked), (0.0, 1.0), student=Ridge(), n_teachers=10, delta=1e-6
    )
    yield lambda: line.fit(rows, labels.astype(float), QUERIES)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("ending", [SystemExit, Panic])
def test_a_chunk_cannot_end_the_program(ending, asked):
    rows = np.random.default_rng(0).normal(size=(600, 3))
    rows[7] = 99.0
    for run in answered(ending, asked, rows):
        run()
    for run in answered(KeyboardInterrupt, asked, rows):  # which is the user's
        with pytest.raises(KeyboardInterrupt):
            run()


def state():
    return np.random.get_state(legacy=False), random.getstate()


def same(first, second):
    return repr(first) == repr(second) and np.array_equal(
        first[0]["state"].get("key", []), second[0]["state"].get("key", [])
    )


def failing(X):
    np.random.random(3)
    random.random()
    raise KeyError("no")


@pytest.mark.parametrize("bits", [None, np.random.PCG64])
def test_global_generators_are_as_before(bits):
    """Where they stand after a fit would otherwise tell what the chunks drew."""
    X, codes = records()
    usual = np.random.get_bit_generator()
    if bits is not None:
        np.random.set_bit_generator(bits(7))
    try:
        seed = np.random.SeedSequence(3)
        np.random.standard_normal(3)
        random.gauss(0, 1)
        before = state()
        poll = teachers.Poll(GlobalFeatures(), QUERIES, CLASSES, N_TEACHERS, seed)
        teachers.collect_votes(poll, X, codes, CHUNKS)
        assert same(state(), before)
        with joblib.parallel_config(backend="threading"):
            teachers.collect_votes(poll, X, codes, CHUNKS, n_jobs=2)
        assert same(state(), before)
        subsample_and_aggregate(failing, X, [0, 1], n_chunks=5, epsilon=1.0, delta=1e-6)
        assert same(state(), before)
        PrivateTransferRegressor(GlobalLine(), (0.0, 1.0), student=Ridge(), n_teachers=5).fit(
            X, codes, QUERIES
        )
        assert same(state(), before)
        labeler = PrivateLabeler(GlobalFeatures(), n_queries=5, n_teachers=40, delta=1e-6, classes=[0, 1])
        labeler.fit(X, codes).label(QUERIES[:1])
        assert same(state(), before)
        with pytest.raises(KeyError), isolated(1):
            failing(X)
        assert same(state(), before)
    finally:
        np.random.set_bit_generator(usual)


def test_a_question_gets_the_same_vote_whatever_was_asked_before():
    teacher = teachers.train(GlobalFeatures(), *(part[:SIZE] for part in records()), CLASSES, seed=5)
    first = teacher.vote(QUERIES, CLASSES)
    np.random.seed(1)
    teacher.vote(QUERIES[:7], CLASSES)
    assert np.array_equal(teacher.vote(QUERIES, CLASSES), first)


def test_everything_that_has_a_random_state_gets_the_seed():
    inner = CalibratedClassifierCV(BaggingClassifier(SGDClassifier()), cv=folds(np.random.RandomState(0)))
    search = RandomizedSearchCV(inner, {"method": ["sigmoid"]}, cv=RepeatedStratifiedKFold(random_state=1))
    copy = seeded(make_pipeline(PCA(), search), 42)
    found = copy[-1]
    for part in (
        copy[0],
        found,
        found.cv,
        found.estimator.cv,
        found.estimator.estimator,
        found.estimator.estimator.estimator,
    ):
        assert part.random_state == 42
    assert search.cv.random_state == 1  # the user's own is left alone
    assert isinstance(inner.cv.random_state, np.random.RandomState)


def test_a_frozen_model_of_the_user_is_left_alone():
    X, codes = records()
    public = DecisionTreeClassifier(random_state=7).fit(X, codes)
    copy = seeded(CalibratedClassifierCV(FrozenEstimator(public)), 42)
    assert public.random_state == 7
    assert copy.estimator.estimator is not public


def test_models_inside_a_teacher_start_no_workers_of_their_own():
    """Generators of another process would not be those of the teacher."""
    with isolated(1):
        assert joblib.effective_n_jobs(2) == 1


def test_threads_take_turns():
    inside, overlaps = [], []

    def work(seed):
        for _ in range(20):
            with isolated(seed):
                inside.append(seed)
                draws = np.random.random(50), random.random()
                overlaps.append(len(inside) > 1)
                inside.remove(seed)
                expected = np.random.RandomState(np.random.MT19937(seed)).random_sample(50)
                assert np.array_equal(draws[0], expected)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(overlaps)
    assert len(overlaps) == 80


def test_the_bar_moves_alike_for_every_number_of_tasks(monkeypatch):
    """It depends on that of the rows, which is private under add-remove-one."""
    moves = []

    @contextmanager
    def progress(description, total):
        moves.append([total])
        yield moves[-1].append

    monkeypatch.setattr(teachers.console, "progress", progress)
    for n_tasks in (16, 17, 31, 1000):
        with teachers._progress(n_tasks) as finished:
            for _ in range(n_tasks):
                finished()
    assert moves == [[16, *["teachers"] * 16]] * 4
