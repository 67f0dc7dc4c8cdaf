"""Checks of parameters, and suppression of warnings while private data is in use.

Checks raise errors that name the parameter, say which values are allowed and what to do. While private data is in use,
`silence` suppresses every warning and floating-point error, whatever the process has configured: otherwise one
person's record could decide whether a warning appears or the program stops.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self, SupportsFloat, TypeVar, cast

import numpy as np

Result = TypeVar("Result")


class Setting:
    """A parameter that a hint suggests setting, with the suggested values; without values, any value.

    >>> str(Setting("bad_rows", "null", purpose="to ignore such rows"))
    "pass bad_rows='null' to ignore such rows"
    >>> str(Setting("solver", "output", "localized"))
    "pass solver='output' or 'localized'"
    >>> str(Setting("n_samples"))
    'pass n_samples=...'
    """

    def __init__(self, name: str, *values: Any, purpose: str = "") -> None:
        self.name, self.values, self.purpose = name, values, purpose

    def __str__(self) -> str:
        return self.worded(f"{self.name}={either(list(map(repr, self.values))) or '...'}")

    def worded(self, assignment: str) -> str:
        """Return the same advice with the assignment written differently."""
        return " ".join(filter(None, ("pass", assignment, self.purpose)))


class HintedError(Exception):
    """An error with advice: ``hint`` lists alternatives, each a text or a `Setting`.

    >>> print(HintedError("2 rows are empty", "correct them", Setting("bad_rows", "null")))
    2 rows are empty; correct them or pass bad_rows='null'
    """

    def __init__(self, message: str, *hint: str | Setting) -> None:
        super().__init__(message, *hint)  # exceptions are pickled by their arguments
        self.message = message
        self.hint: tuple[str | Setting, ...] = tuple(one for one in hint if one)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.message, either(list(map(str, self.hint))))))


class NamedError(HintedError):
    """An error about a parameter: ``name`` is the parameter and ``problem`` says what is wrong."""

    def __init__(self, name: str, problem: str, *hint: str | Setting) -> None:
        super().__init__(f"{name}{problem}" if problem[0] in ",:[" else f"{name} {problem}", *hint)
        self.args = (name, problem, *hint)
        self.name, self.problem = name, problem


class ParameterError(NamedError, ValueError):
    """A parameter has a value that is not allowed.

    >>> error = ParameterError("epsilon", "must be a number greater than 0, got -1", "1.0 is a common choice")
    >>> print(error)
    epsilon must be a number greater than 0, got -1; 1.0 is a common choice
    >>> error.name, error.hint
    ('epsilon', ('1.0 is a common choice',))
    """


class ParameterTypeError(NamedError, TypeError):
    """A parameter has a value of the wrong type."""


def either(alternatives: list[str]) -> str:
    """Join alternatives with commas and "or".

    >>> either(["a"]), either(["a", "b"]), either(["a", "b", "c"])
    ('a', 'a or b', 'a, b, or c')
    """
    *others, last = alternatives or [""]
    return f"{', '.join(others)}{',' * (len(others) > 1)} or {last}" if others else last


def real(name: str, value: Any, *, above: float | None = None, hint: str = "") -> float:
    """Check that ``value`` is a finite real number, greater than ``above`` if given; refuse booleans and strings."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterTypeError(name, f"must be a number, got {value!r}", hint)
    try:
        number = float(cast(SupportsFloat, value))
    except OverflowError:  # an integer beyond the largest float
        number = math.inf
    if not math.isfinite(number) or (above is not None and not number > above):
        wanted = "a finite number" if above is None else f"a finite number greater than {above:g}"
        raise ParameterError(name, f"must be {wanted}, got {value!r}", hint)
    return number


def count(name: str, value: Any, *, at_least: int = 1, hint: str = "") -> int:
    """Check that ``value`` is a whole number of at least ``at_least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterTypeError(name, f"must be a whole number, got {value!r}", hint)
    if int(value) < at_least:
        raise ParameterError(name, f"must be at least {at_least}, got {value!r}", hint)
    return int(value)


def count_or_none(name: str, value: Any) -> int | None:
    """Check that ``value`` is a whole number of at least 1, or None."""
    return None if value is None else count(name, value)


def interval(name: str, value: Any) -> tuple[float, float]:
    """Check that ``value`` is a pair of finite numbers, the lower one first."""
    ends = tuple(value) if np.iterable(value) else ()
    if len(ends) != 2:
        raise ParameterError(name, f"must be two numbers (lowest, highest), got {value!r}")
    low, high = (real(name, end) for end in ends)
    if not low / 2 < high / 2:  # half of the least double is 0
        raise ParameterError(name, f"must be (lowest, highest) with lowest < highest, got {(low, high)}")
    return low, high


def choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """Check that ``value`` is one of the allowed names."""
    if value not in allowed:
        raise ParameterError(name, f"must be one of {sorted(allowed)}, got {value!r}")
    return str(value)


def with_python_numbers(made: Result) -> Result:
    """Return a dataclass with Python's numbers in place of NumPy's among its fields; anything else as it is.

    NumPy computes with numbers of half or single precision in that precision, and rounds bounds and sensitivities down.
    """
    if not dataclasses.is_dataclass(made) or isinstance(made, type):
        return made
    changed = _python_numbers(made)
    return dataclasses.replace(made, **changed) if changed else made


def use_python_numbers(made: Any) -> None:
    """Replace NumPy's numbers among the fields of a dataclass that is being made, in its ``__post_init__``."""
    for name, value in _python_numbers(made).items():
        object.__setattr__(made, name, value)


def _python_numbers(made: Any) -> dict[str, float | int]:
    values = {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
    return {
        name: float(value) if isinstance(value, np.floating) else int(value)
        for name, value in values.items()
        if isinstance(value, np.floating | np.integer)
    }


def seed(random_state: Any) -> np.random.SeedSequence:
    """Return the seed of splits and optimizers (never of privacy noise): from None, a whole number, or a SeedSequence.

    Generators are refused: scikit-learn copies constructor arguments, and a copied generator repeats its stream.
    """
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return np.random.SeedSequence(int(random_state))
    raise ParameterTypeError(
        "random_state",
        f"must be None, a whole number or a numpy SeedSequence, got {random_state!r}",
        "it seeds splits and optimizers, never the noise; to repeat noise in a test, use discreet.insecure_noise",
    )


def refuse_arguments(method: str, given: Mapping[str, Any]) -> None:
    """Raise for arguments that a method does not take, with a reason for those that people expect."""
    for name in given:
        reason = ""
        if name in ("sample_weight", "class_weight"):
            reason = (
                ": a record with weight w changes the model w times as much, which the guarantee does not cover. "
                "Leave it out; to favor a rare class, move the threshold of the released scores"
            )
        raise ParameterTypeError(name, f"is not a parameter of {method}(){reason}")


class Habits:
    """Answer parameters and attributes of other libraries that do not exist here by the name of what does it here.

    Parameters in ``__new__``, which is called with what the constructor gets: constructors keep their plain signatures,
    from which ``get_params`` and ``clone`` read the parameters. Attributes still raise an ``AttributeError``, so
    ``hasattr`` answers as before.
    """

    def __new__(cls, *_: Any, **given: Any) -> Self:
        if given:
            known = list(inspect.signature(cls).parameters)
            for name in given:
                if name not in known:
                    raise TypeError(f"{cls.__name__} has no parameter {name!r}{_advice(name, known)}")
        return super().__new__(cls)

    def set_params(self, **given: Any) -> Self:
        """Set parameters, as scikit-learn does; names of other libraries are answered as in the constructor."""
        known = list(inspect.signature(type(self)).parameters)
        for name in given:
            if name.partition("__")[0] not in known:
                advice = _advice(name, known)
                raise ValueError(f"Invalid parameter {name!r} for estimator {type(self).__name__}{advice}")
        return super().set_params(**given)  # type: ignore[misc,no-any-return]

    if not TYPE_CHECKING:  # for a type checker, unknown attributes stay unknown

        def __getattr__(self, name: str) -> Any:
            if name not in _REMEMBERED:
                return object.__getattribute__(self, name)  # raises the usual error, or that of a property
            raise AttributeError(f"{type(self).__name__} has no {name!r}: {_REMEMBERED[name]}")


_TABLE = "discreet.card.coefficients(model) is the table of coefficients and odds ratios, at no cost"
_INTERVALS = "discreet.coefficient_intervals gives confidence intervals, which use budget"
# What does it here, by the name of a method or attribute of scikit-learn or statsmodels.
_REMEMBERED = {
    "partial_fit": "every fit is charged in full. PrivateOnlineLinearModel learns from a stream for one charge",
    "summary": f"{_TABLE}, and print(model.privacy_) prints the privacy statement. {_INTERVALS}",
    "params": f"{_TABLE}; coef_ and intercept_ are the numbers",
    "conf_int": _INTERVALS,
    "bse": _INTERVALS,
    "pvalues": f"a test must take the noise into account: {_INTERVALS}",
    "feature_importances_": _TABLE,
    "cv_results_": "scores of candidates are not released, only the chosen model: best_estimator_, best_params_",
}


# What does it here, for estimators that have the first parameter named, if one is; the last line of a name is for all.
_HABITS: dict[str, tuple[tuple[str, str], ...]] = {
    "C": (
        (
            "l2",
            "l2, the ridge on the mean loss, is 1 / (C * n_samples); left out, it follows from public numbers",
        ),
        ("l1_radius", "l1_radius bounds the coefficients instead of penalizing them"),
        ("", "regularization follows from public numbers"),
    ),
    "alpha": (
        (
            "l2",
            "l2, the ridge on the mean loss, is alpha / n_samples for Ridge; left out, it follows from public numbers",
        ),
        ("l1_radius", "l1_radius bounds the coefficients instead of penalizing them"),
        ("", "regularization follows from public numbers"),
    ),
    "penalty": (
        ("l2", "l2 is the penalty; for few coefficients use PrivateSparseLogisticRegression or PrivateLasso"),
        ("", "the estimator fixes the penalty: PrivateLogisticRegression and PrivateRidge have l2"),
    ),
    "class_weight": (
        (
            "",
            "PrivateLogisticRegression and PrivateLinearSVC take weights that are public numbers. Moving the threshold "
            "after the fit is free: sklearn.model_selection.FixedThresholdClassifier(model, threshold=...)",
        ),
    ),
    "max_iter": (
        (
            "solver",
            "the number of steps affects the privacy cost and is a setting of the solver, for example "
            "solver=discreet.solvers.NoisyGradientDescent(n_iterations=100); by default it follows from public numbers",
        ),
        ("n_iterations", "n_iterations is the number of noisy rounds"),
        ("", "the number of steps follows from public numbers"),
    ),
    "tol": (("", "stopping must not depend on the data: the plan fixes the number of steps"),),
    "n_jobs": (
        ("", "fits use the processors there are; limit them with OMP_NUM_THREADS and NUMBA_NUM_THREADS"),
    ),
    "verbose": (("", "use `with discreet.on_progress(print):`, or logging.getLogger('discreet')"),),
    "warm_start": (("", "every fit is charged in full, so a warm start would save nothing"),),
    "l1_ratio": (("", "use PrivateSparseLogisticRegression or PrivateLasso for few coefficients"),),
    "dual": (("solver", "solver chooses the method"),),
    "loss": (
        (
            "",
            "the estimator fixes the loss: see PrivateHuberRegressor, PrivateQuantileRegressor, PrivateLinearSVC",
        ),
    ),
    "eps": (("epsilon", "epsilon is the privacy budget"),),
    "bounds": (("target_bounds", "target_bounds is the range of targets"),),
    "data_norm": (("feature_bound", "feature_bound is the largest norm of a row"),),
    "multi_class": (("classes", "several classes are fitted one against the rest, within one epsilon"),),
    "cv": (
        (
            "holdout",
            "holdout is the fraction of records that are held out, once: every fold would use budget",
        ),
    ),
    "refit": (("holdout", "the chosen model is released as it was trained: a refit would use budget"),),
    "scoring": (
        ("holdout", "classifiers are compared by accuracy and regressors by squared error, with noise"),
    ),
    "n_components": (("rank", "rank is the largest number of latent directions"),),
    "factors": (("rank", "rank is the largest number of latent directions"),),
}


def _advice(name: str, known: list[str]) -> str:
    """What to do instead of setting a parameter that a class with the ``known`` ones does not have."""
    for parameter, words in _HABITS.get(name, ()):
        if not parameter or parameter in known:
            return f": {words} (docs/from-scikit-learn.md)"
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


@contextmanager
def calm() -> Iterator[None]:
    """Ignore floating-point errors in this thread; the library's warnings are still shown.

    >>> with np.errstate(all="raise"), calm():
    ...     print(np.float64(1e-200) * np.float64(1e-200))
    0.0
    """
    from scipy import special  # slow to import

    with np.errstate(all="ignore"), special.errstate(all="ignore"):  # type: ignore[arg-type]
        yield


_silent = threading.Lock()
_silent_blocks: list[
    warnings.catch_warnings[None]
] = []  # the outermost one, then one entry for each block inside


@contextmanager
def silence() -> Iterator[None]:
    """Ignore floating-point errors in this thread, and warnings in all threads.

    Blocks are counted because the filter of warnings is global: the last thread to leave restores it.
    """
    with _silent:
        _silent_blocks.append(warnings.catch_warnings(action="ignore"))
        if len(_silent_blocks) == 1:
            _silent_blocks[0].__enter__()
    try:
        with calm():
            yield
    finally:
        with _silent:
            if len(_silent_blocks) == 1:
                _silent_blocks[0].__exit__(None, None, None)
            _silent_blocks.pop()


@contextmanager
def contained() -> Iterator[None]:
    """Make an ``Exception`` of whatever the code of others raises about private rows, but for Ctrl-C.

    ``SystemExit`` and the panics of libraries in Rust, such as polars, are no ``Exception`` and would end the program.

    >>> with contained():
    ...     raise SystemExit
    Traceback (most recent call last):
    RuntimeError: SystemExit
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(type(error).__name__) from None


def silently(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function in `silence`. For threads and workers, which do not inherit the error state."""
    with silence():
        return function(*arguments)
