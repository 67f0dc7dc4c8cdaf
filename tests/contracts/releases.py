"""Every way to a release, as a program of private data: what the contracts of this folder run over.

A program takes ``(X, y)``, rows and real targets between -1 and 1, and returns all that it shows. What can take invalid
rows is told to treat them as null. The others, listed in `STRICT`, refuse them before the charge.
"""

import functools
import importlib
import inspect
import itertools
import pkgutil
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import discreet
import discreet.solvers
from discreet.description.quantiles import private_domains, private_norm_bound
from discreet.estimators.linear import PrivateLinearModel
from discreet.losses import (
    Absolute,
    GradientLoss,
    Hinge,
    HuberHinge,
    Linear,
    Logistic,
    Quantile,
    Softmax,
    Squared,
)
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.recommend.methods import METHODS
from discreet.recommend.methods.clicks import IMPLICIT
from discreet.sets import (
    BallIntersection,
    Box,
    GroupedL1Ball,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexPolytope,
)
from discreet.solvers import base
from discreet.transfer.labeler import PrivateQueries
from discreet.transfer.subsample import subsample_and_aggregate

for module in pkgutil.iter_modules(discreet.solvers.__path__):
    importlib.import_module(f"discreet.solvers.{module.name}")

N, P = 60, 2
CLASSES = [0, 1]
PUBLIC = np.random.default_rng(7).uniform(-1, 1, size=(8, P))


def ordinary(seed):
    """Rows and targets as they should be."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, size=(N, P))
    return X, np.clip(X[:, 0] - X[:, 1] + rng.normal(size=N) / 5, -1.0, 1.0)


def labels_of(y):
    """Labels of real targets; 9, which is no class, where there is none."""
    return np.where(np.isfinite(y), y > 0, 9).astype(np.int64)


def given(kind, **values):
    """Those of ``values`` that the class or function takes."""
    return {name: value for name, value in values.items() if name in inspect.signature(kind).parameters}


PEOPLE = np.repeat(np.arange(N // 2), 2)  # every two rows are one person's


def whose(people):
    """Arguments of a fit."""
    return {"groups": PEOPLE} if people else {}


def most(people):
    """Parameters of an estimator."""
    return {"max_rows_per_group": 2} if people else {}


# -- linear models ---------------------------------------------------------------------------------------------------

PARAMETERS = {
    "delta": 1e-2,
    "classes": CLASSES,
    "target_bounds": (-1.0, 1.0),
    "bad_rows": "null",
    "l1_radius": 1.0,
}
LINEAR = {
    name: kind
    for name, kind in ((name, getattr(discreet, name)) for name in discreet.__all__)
    if isinstance(kind, type) and issubclass(kind, PrivateLinearModel) and name != "PrivateERM"
}


def linear(name, people=False, **parameters):
    kind = LINEAR[name]
    model = kind(1.0, **given(kind, **PARAMETERS) | most(people) | parameters)
    if name == "PrivatePoissonRegressor":
        model.set_params(target_bounds=(0.0, 4.0))

    def program(data):
        X, y = data
        return clone(model).fit(X, labels_of(y) if hasattr(model, "classes") else y, **whose(people))

    return program


def in_csr(program):
    """The program on rows in a sparse matrix."""
    return lambda data: program((sp.csr_array(data[0]), data[1]))


SETTINGS = (
    {},
    {"neighboring": "zero-out"},
    {"constraint": L2Ball(1.0, P + 1)},
    {"constraint": L1Ball(1.0, P + 1)},
)


@functools.cache
def home_of(solver):
    """The first estimator, and its settings, for which a solver plans."""
    for settings, (name, kind) in itertools.product(SETTINGS, LINEAR.items()):
        parameters = settings | {"solver": solver}
        if given(kind, **parameters) != parameters:
            continue
        try:
            kind(1.0, **given(kind, **PARAMETERS), **parameters).plan(N, P)
        except (TypeError, ValueError):
            continue  # not proved for this problem
        return name, parameters
    raise LookupError(f"no estimator for solver {solver!r}")


def with_solver(solver):
    def program(data):
        name, parameters = home_of(solver)
        return linear(name, **parameters)(data)

    return program


def minimized(loss, constraint=None, people=False, **parameters):
    """Any loss; labels are signs or codes where it takes no others."""
    told = {"epsilon": 1.0, "delta": 1e-2, "bad_rows": "null", **most(people), **parameters}
    model = discreet.PrivateERM(loss, constraint, **told)

    def program(data):
        X, y = data
        if loss.linear and loss.n_outputs > 1:
            y = np.where(np.isfinite(y), labels_of(y), np.nan)
        elif loss.linear and loss.label_bound == 1.0:
            y = np.sign(y)
        return clone(model).fit(X, y, **whose(people))

    return program


def toward(theta, x, y):
    """The gradient of half the squared distance; rows of large numbers are an error of the user's function."""
    if np.abs(x).max() > 1e6:
        raise OverflowError(f"{x} is too large")
    return theta - x


# -- everything else ---------------------------------------------------------------------------------------------------


def median(data, people=False):
    model = discreet.PrivateMedian(1.0, 1e-2, radius=2.0, bad_rows="null", **most(people))
    return model.fit(data[0], **whose(people))


def components(method, people=False):
    told = {"n_components": 1, "method": method, "bad_rows": "null", **most(people)}
    return lambda data: discreet.PrivatePCA(1.0, 1e-2, **told).fit(data[0], **whose(people))


def additive(name, people=False, **parameters):
    kind = getattr(discreet, name)
    told = (
        most(people)
        | given(kind, **PARAMETERS)
        | {"feature_bounds": (-1.0, 1.0), "n_iterations": 3}
        | parameters
    )

    def program(data):
        X, y = data
        return kind(1.0, **told).fit(X, labels_of(y) if "classes" in told else y, **whose(people))

    return program


@functools.cache
def released(name, people=False, classes=(0, 1)):
    """A model that is out already."""
    with insecure_noise(3), warnings.catch_warnings(action="ignore"):
        return linear(name, people, **given(LINEAR[name], classes=list(classes)))(ordinary(99))


def evaluated(name, people=False, classes=(0, 1)):
    model = released(name, people, classes)
    told = {"epsilon": 1.0, "delta": 1e-2, "bad_rows": "null", "bins": 2, **most(people), **whose(people)}

    def program(data):
        X, y = data
        truth = labels_of(y) if "Logistic" in name else y
        return discreet.evaluate(model, X, truth, **told)

    return program


def intervals(name, people=False):
    model = released(name, people)
    told = {"epsilon": 1.0, "delta": 1e-2, **most(people), **whose(people)}

    def program(data):
        X, y = data
        truth = labels_of(y) if "Logistic" in name else y
        return discreet.coefficient_intervals(model, X, truth, **told)

    return program


def selected(method, people=False):
    told = {"method": method, "bad_rows": "null", **most(people)}

    def program(data):
        candidates = [discreet.PrivateRidge(target_bounds=(-1.0, 1.0), l2=l2) for l2 in (1.0, 10.0)]
        return discreet.PrivateSelection(candidates, 2.0, 1e-2, **told).fit(*data, **whose(people))

    return program


def searched(data, people=False):
    search = discreet.PrivateSearchCV(
        discreet.PrivateLogisticRegression(solver="output", classes=CLASSES),
        {"l2": [1.0, 10.0]},
        2.0,
        0.0,
        method="split",
        bad_rows="null",
        **most(people),
    )
    return search.fit(data[0], labels_of(data[1]), **whose(people))


TREE = DecisionTreeClassifier(max_depth=1, random_state=0)


def transferred(aggregator, people=False):
    def program(data):
        model = discreet.PrivateTransferClassifier(
            TREE,
            LogisticRegression(),
            n_teachers=20,
            epsilon=2.0,
            delta=1e-2,
            aggregator=aggregator,
            classes=CLASSES,
            random_state=0,
        )
        return model.fit(data[0], data[1] > 0, PUBLIC, **whose(people))

    return program


def transferred_targets(data, people=False):
    model = discreet.PrivateTransferRegressor(
        Ridge(), (-1.0, 1.0), n_teachers=20, epsilon=2.0, delta=1e-2, random_state=0
    )
    return model.fit(*data, PUBLIC, **whose(people))


def labeled(pool, people=False):
    def program(data):
        labeler = discreet.PrivateLabeler(
            TREE, n_queries=8, n_teachers=20, epsilon=2.0, delta=1e-2, classes=CLASSES, random_state=0
        ).fit(data[0], data[1] > 0, pool=PUBLIC if pool else None, **whose(people))
        answers = labeler.label_rows(np.arange(len(PUBLIC))) if pool else labeler.label(PUBLIC)
        left = labeler.halted, labeler.remaining
        labeler.close()
        return answers, *left, labeler.privacy_

    return program


def error_rate(data):
    return discreet.private_error_rate(
        TREE, data[0], data[1] > 0, epsilon=1.0, n_teachers=10, classes=CLASSES, random_state=0
    )


def agreed(data, people=False):
    def larger(rows):
        return int(rows[:, 0].mean() > rows[:, 1].mean())

    told = {"n_chunks": 10, "epsilon": 2.0, "delta": 1e-2, **whose(people)}
    return subsample_and_aggregate(larger, data[0], CLASSES, **told)


def asked(data, people=False):
    def larger(rows):
        return int(rows[:, 0].mean() > rows[:, 1].mean())

    stream = PrivateQueries(n_queries=2, max_unstable=3, epsilon=2.0, delta=1e-2).fit(
        data[0], **whose(people)
    )
    answers = stream.ask(larger, CLASSES), stream.ask(lambda rows: len(rows) % 2, CLASSES)
    left = stream.halted, stream.remaining
    stream.close()
    texts = [None if answer is None else repr(answer) for answer in answers]  # as the digest has them
    return texts, *left, stream.privacy_


def completed(method, feedback):
    """Rows are users, of ten items each; what is no number is no rating."""
    weights = np.random.default_rng(5).normal(size=(P, 10))

    def program(data):
        X, _ = data
        with np.errstate(all="ignore"):
            stars = np.clip(np.where(np.abs(X) <= 2.0**300, X, np.nan) @ weights, -1, 1)
        kept = np.isfinite(stars) & (np.arange(10) % 3 != np.arange(len(X))[:, None] % 3)
        kept[:, 0] |= np.isfinite(stars[:, 0]) & (stars[:, 0] > 0)
        ratings = sp.csr_array((stars[kept], np.nonzero(kept)), shape=stars.shape)
        model = discreet.PrivateMatrixCompletion(
            method, 1.0, 1e-2, rank=2, rating_bounds=(-1, 1), items=list(range(10)), feedback=feedback
        )
        return model.fit(ratings)

    return program


def quantiles(data, people=False):
    told = {"candidates": np.linspace(-1, 1, 9), "epsilon": 1.0, "delta": 1e-2, "bad_rows": "null"}
    return discreet.private_quantiles(data[0], [0.25, 0.75], **told, **most(people), **whose(people))


def norm_bound(data, people=False):
    return private_norm_bound(data[0], epsilon=1.0, bad_rows="null", **most(people), **whose(people))


def domains(data, people=False):
    table = {"a": data[0][:, 0], "b": data[0][:, 1]}
    told = {"epsilon": 1.0, "delta": 1e-2, "bad_rows": "null", **most(people), **whose(people)}
    return private_domains(table, {"a": None, "b": None}, **told)


DESCRIBED = discreet.Schema(
    {"a": discreet.Numeric(-1, 1), "b": discreet.Binned((-0.5, 0.0, 0.5))}, discreet.Target("y", (0, 1))
)


def described(data, people=False):
    table = {"a": data[0][:, 0], "b": data[0][:, 1], "y": labels_of(data[1])}
    told = {"epsilon": 1.0, "delta": 1e-2, "bins": 4, "pairs": [("b", "y")], "bad_rows": "null"}
    return discreet.describe(table, DESCRIBED, **told, **most(people), **whose(people))


def steps(people):
    """Arguments of each step of a stream."""
    return [{"group": str(person)} if people else {} for person in PEOPLE]


def played(method, people=False):
    def program(data):
        learner, actions = discreet.PrivateFTRL(P, N, 1.0, 1e-2, method=method, **most(people)), []
        for costs, person in zip(data[0], steps(people), strict=True):
            actions.append(learner.predict_one())
            learner.learn_one(costs, **person)
        learner.close()
        return actions, learner.step, learner.privacy_

    return program


def learned(data, people=False):
    learner = discreet.PrivateOnlineLinearModel(P, N, 1.0, 1e-2, classes=CLASSES, **most(people))
    models = []
    for row, label, person in zip(data[0], labels_of(data[1]), steps(people), strict=True):
        learner.learn_one(row, label, **person)
        models.append(np.append(learner.coef_, learner.intercept_))
    return (
        models,
        learner.average_,
        learner.predict_one(PUBLIC[0]),
        learner.privacy_,
    )


CLASSES_AND_WEIGHTS = {
    "PrivateLogisticRegression weighted": linear("PrivateLogisticRegression", class_weight={1: 5.0}),
    "PrivateLinearSVC weighted": linear("PrivateLinearSVC", class_weight={0: 0.2}),
    "PrivateLogisticRegression 3 classes": linear("PrivateLogisticRegression", classes=[0, 1, 2]),
    "PrivateLinearSVC 3 classes": linear("PrivateLinearSVC", classes=[0, 1, 2]),
    "PrivateLogisticRegression 3 classes one by one": linear(
        "PrivateLogisticRegression", classes=[0, 1, 2], multi_class="ovr"
    ),
    "PrivateLogisticRegression 3 weighted": linear(
        "PrivateLogisticRegression", classes=[0, 1, 2], class_weight={2: 3.0}
    ),
    "evaluate 3 classes": evaluated("PrivateLogisticRegression", classes=(0, 1, 2)),
}
#: One of each loss that a user may minimize; other losses are made of these by estimators and solvers.
LOSSES = {
    f"PrivateERM {type(loss).__name__}": minimized(loss)
    for loss in (
        Absolute(),
        HuberHinge(0.1),
        Linear(1.0),
        Logistic(),
        Quantile(0.3, 0.1),
        Softmax(2),
        Squared(2.0, 1.0),
    )
}
#: One of each set, for four coefficients of two columns and no intercept or of a softmax of two classes.
_BALL = L1Ball(1.0, P)
CONSTRAINTS = {
    "Box": Box((-1.0,) * P, (1.0, 0.5)),
    "BallIntersection": BallIntersection(_BALL, (0.1, 0.0), 0.5),
    "GroupedL1Ball": GroupedL1Ball(1.0, P, 2),
    "InterpolationBall": InterpolationBall(1.0, P, 0.5),
    "L1Ball": _BALL,
    "L2Ball": L2Ball(1.0, P),
    "NuclearBall": NuclearBall(1.0, (1, P)),
    "Simplex": Simplex(1.0, P),
    "VertexPolytope": VertexPolytope(np.vstack([np.eye(P), -np.eye(P)])),
}
SETS = {
    f"set {name}": linear(
        "PrivateLogisticRegression", constraint=inside, fit_intercept=False, solver="noisy-gd"
    )
    for name, inside in CONSTRAINTS.items()
}
SAMPLED = {
    f"solver {solver} in {name}": linear(
        "PrivateLogisticRegression",
        constraint=CONSTRAINTS[name],
        fit_intercept=False,
        solver=solver,
        delta=0.0,
        l2=0.1,
    )
    for name in ("Box", "L1Ball", "L2Ball", "Simplex")
    for solver in ("exponential", "localized")
}
PURE = {
    f"{name} pure": linear(name, delta=0.0)
    for name in ("PrivateLogisticRegression", "PrivateRidge", "PrivateLasso", "PrivatePoissonRegressor")
} | {
    "PrivateMedian pure": lambda data: discreet.PrivateMedian(1.0, 0.0, radius=2.0, bad_rows="null").fit(
        data[0]
    )
}
STRICT = {  # of these, what is no number is refused before the charge
    "coefficient_intervals people": intervals("PrivateRidge", people=True),
    "coefficient_intervals logistic": intervals("PrivateLogisticRegression"),
    "coefficient_intervals ridge": intervals("PrivateRidge"),
}
TRANSFERS = {  # rows are their teachers' business, whatever they hold; one that fails is a teacher without a model
    **{
        f"PrivateTransferClassifier {name}": transferred(name)
        for name in ("shares", "sparse-vector", "plurality", "confident")
    },
    "PrivateTransferRegressor": transferred_targets,
    "PrivateLabeler": labeled(pool=False),
    "PrivateLabeler pool": labeled(pool=True),
    "private_error_rate": error_rate,
    "subsample_and_aggregate": agreed,
    "PrivateQueries": asked,
    "PrivateTransferClassifier people": transferred("plurality", people=True),
    "PrivateTransferRegressor people": functools.partial(transferred_targets, people=True),
    "PrivateLabeler people": labeled(pool=False, people=True),
    "subsample_and_aggregate people": functools.partial(agreed, people=True),
    "PrivateQueries people": functools.partial(asked, people=True),
}
SPARSE = {  # these take rows in a sparse matrix
    "PrivateMedian",
    "PrivateERM hinge",
    "PrivateERM own gradients",
    *(name for name in LINEAR if "Simplex" not in name),
    *(f"solver {name}" for name in base.names() if "Simplex" not in home_of(name)[0]),
}
PROGRAMS = {
    **{name: linear(name) for name in LINEAR},
    "PrivateSparseLogisticRegression selecting": linear("PrivateSparseLogisticRegression", max_columns=1),
    **{f"solver {name}": with_solver(name) for name in base.names()},
    "PrivateERM hinge": minimized(Hinge()),
    "PrivateERM own gradients": minimized(GradientLoss(toward, clip=1.0), L2Ball(1.0, P)),
    "PrivateMedian": median,
    **{f"PrivatePCA {method}": components(method) for method in ("svd", "power", "oja")},
    "PrivateAdditiveClassifier": additive("PrivateAdditiveClassifier"),
    "PrivateAdditiveClassifier pairs": additive("PrivateAdditiveClassifier", pairs=1),
    "PrivateAdditiveClassifier 3 classes": additive("PrivateAdditiveClassifier", classes=[0, 1, 2]),
    "PrivateAdditiveRegressor": additive("PrivateAdditiveRegressor"),
    "PrivateAdditiveRegressor counts": additive(
        "PrivateAdditiveRegressor", target_bounds=(0.0, 10.0), loss="poisson", pairs=1
    ),
    "PrivateAdditiveRegressor pairs": additive("PrivateAdditiveRegressor", pairs=1, monotonic={"x0": 1}),
    **{f"PrivateSelection {method}": selected(method) for method in ("tries", "split", "split-parallel")},
    "PrivateSearchCV": searched,
    "evaluate classifier": evaluated("PrivateLogisticRegression"),
    "evaluate regressor": evaluated("PrivateRidge"),
    **{f"PrivateMatrixCompletion {method}": completed(method, "explicit") for method in METHODS},
    **{f"PrivateMatrixCompletion {method} clicks": completed(method, "implicit") for method in IMPLICIT},
    "private_quantiles": quantiles,
    "private_norm_bound": norm_bound,
    "private_domains": domains,
    "describe": described,
    "PrivateFTRL tree": played("tree"),
    "PrivateFTRL sampling": played("sampling"),
    "PrivateOnlineLinearModel": learned,
    **{f"{name} people": linear(name, people=True) for name in LINEAR},
    "PrivateERM people": minimized(Hinge(), people=True),
    "PrivateMedian people": functools.partial(median, people=True),
    "PrivatePCA people": components("svd", people=True),
    "PrivateAdditiveClassifier people": additive("PrivateAdditiveClassifier", people=True),
    "PrivateAdditiveRegressor people": additive("PrivateAdditiveRegressor", people=True),
    "PrivateSelection people": selected("tries", people=True),
    "PrivateSearchCV people": functools.partial(searched, people=True),
    "evaluate people": evaluated("PrivateLogisticRegression", people=True),
    "describe people": functools.partial(described, people=True),
    "private_quantiles people": functools.partial(quantiles, people=True),
    "private_norm_bound people": functools.partial(norm_bound, people=True),
    "private_domains people": functools.partial(domains, people=True),
    "PrivateFTRL people": played("tree", people=True),
    "PrivateOnlineLinearModel people": functools.partial(learned, people=True),
    **CLASSES_AND_WEIGHTS,
    **LOSSES,
    **SETS,
    **SAMPLED,
    **PURE,
    **STRICT,
    **TRANSFERS,
}

#: Modules that let data meet noise, through `release`, and a program that goes through each.
WAYS = {
    "additive.base": "PrivateAdditiveRegressor",
    "description.describe": "describe",
    "description.quantiles": "private_quantiles",
    "estimators.unlabeled": "PrivatePCA svd",
    "estimators.linear": "PrivateRidge",
    "evaluation.evaluate": "evaluate regressor",
    "intervals.intervals": "coefficient_intervals ridge",
    "online.stream": "PrivateFTRL tree",
    "recommend.completion": f"PrivateMatrixCompletion {next(iter(METHODS))}",
    "search.selection": "PrivateSelection split",
    "transfer.classifier": "PrivateTransferClassifier plurality",
    "transfer.error_rate": "private_error_rate",
    "transfer.labeler": "PrivateLabeler",
    "transfer.regressor": "PrivateTransferRegressor",
    "transfer.subsample": "subsample_and_aggregate",
}
