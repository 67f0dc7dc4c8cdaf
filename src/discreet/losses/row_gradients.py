"""Losses that are not functions of one linear prediction: a user's function gives the gradient of a record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._checks import contained
from discreet._typing import Array, Mask
from discreet.losses.base import Loss, Theorem, check_between

_UNIT = 2.0**-52


@final
@dataclass(frozen=True)
class GradientLoss(Loss):
    """The loss whose gradient for one record is ``gradient(theta, x, y)``, shrunk to norm ``clip`` where it is longer.

    Parameters
    ----------
    gradient : function of (theta, x, y) that returns as many numbers as theta has. x is one row, y its label (0 where
        ``fit`` was given none). With ``batch=True`` a function of (theta, X, y) for several rows and labels at once,
        which returns one row of numbers for each of them.
    clip : largest L2 norm of a record's gradient. Longer gradients are scaled down.
    batch : whether ``gradient`` takes several rows.
    convex : declares that the loss is convex in theta and that no gradient is longer than ``clip``; then fits carry a
        certificate. Privacy does not depend on it.
    smoothness : declares that no gradient changes by more than this times the change of theta; step sizes, and the
        certificate of a convex loss, follow from it. Infinite if it is unknown. Privacy does not depend on it.
    example : a pair (x, y) of an invented record on which the function is tried before anything is charged; None for
        zeros.

    Notes
    -----
    Privacy: needs the clip alone, and that the gradient of a record is computed from theta and that record, not from
    other rows, from counters, clocks or random numbers: what is stated as given by the user. The function gets copies
    that it cannot write to. A row for which it raises an error, or returns anything but finite numbers of the right
    shape, has gradient 0, in silence: an error would tell something about the row. If a batch fails, its rows are
    asked for one by one.

    Accuracy: where gradients are clipped, steps follow the clipped field and not the loss, and end where clipped
    gradients cancel, which is a minimum of the loss only in special cases. Where the loss is not convex, they end
    somewhere low if all goes well; nothing is proved.

    Examples
    --------
    The mean, as the point with the least mean squared distance:

    >>> toward = GradientLoss(lambda theta, x, y: theta - x, clip=1.0)
    >>> toward.rows(np.zeros(2), np.array([[0.3, 0.4], [30.0, 40.0]]), np.zeros(2)).round(3)
    array([[-0.3, -0.4],
           [-0.6, -0.8]])
    """

    gradient: Callable[..., Any]
    clip: float
    batch: bool = False
    convex: bool = False
    smoothness: float = math.inf
    example: tuple[Any, float] | None = field(default=None, compare=False)

    linear = False
    evaluation_error = math.inf

    def __post_init__(self) -> None:
        if not callable(self.gradient):
            raise TypeError(f"gradient must be a function of (theta, x, y), got {self.gradient!r}")
        hint = "it is the largest norm that the gradient of one record may have"
        object.__setattr__(self, "clip", check_between("clip", self.clip, 2.0**-100, 2.0**100, hint))
        if isinstance(self.smoothness, bool) or not self.smoothness > 0:
            raise ValueError(
                f"smoothness must be greater than 0, got {self.smoothness!r}; leave it out if unknown"
            )
        object.__setattr__(self, "smoothness", float(self.smoothness))

    @property
    def lipschitz(self) -> float:
        """The clip."""
        return self.clip

    @property
    def proved_for(self) -> frozenset[Theorem]:  # type: ignore[override]  # a declaration of the user's
        """What the user declares."""
        return frozenset({"convex"}) if self.convex else frozenset()

    @property
    def placeless(self) -> bool:  # type: ignore[override]
        """Whether rows are asked for one by one, so that none can depend on its place."""
        return not self.batch

    @property
    def typical_curvature(self) -> float:
        """The declared one; else as if parameters were of size 1."""
        return min(self.clip, self.smoothness)

    def valid_labels(self, y: ArrayLike) -> Mask:
        """Which labels are finite."""
        return np.isfinite(np.asarray(y, dtype=np.float64))

    def value(self, y: ArrayLike, raw_prediction: ArrayLike) -> NoReturn:
        """There is none."""
        raise TypeError("a GradientLoss is no function of a linear prediction")

    derivative = value
    second_derivative = value

    def rows(self, theta: Array, X: Array, y: Array) -> Array:
        """The clipped gradients of some records at theta, one row each; 0 where the function fails."""
        point = _locked(theta)
        found = self._together(point, X, y) if self.batch else None
        if found is None:
            found = np.stack([self._alone(point, x, label) for x, label in zip(X, y, strict=True)])
        return shrunk(found, self.clip)

    def try_out(self, n_parameters: int, n_columns: int) -> None:
        """Raise a ``ValueError`` if the function fails on the invented record."""
        x, y = (np.zeros(n_columns), 0.0) if self.example is None else self.example
        row, label = np.array(x, dtype=np.float64), float(y)
        if row.shape != (n_columns,):
            raise ValueError(
                f"example must be a row of {n_columns} numbers and a label, got {self.example!r}"
            )
        try:
            made = self._asked(_locked(np.zeros(n_parameters)), row[None], np.array([label]))
        except Exception as error:
            raise ValueError(
                f"gradient fails on an invented record with {type(error).__name__}: {error}; pass example=(x, y) if it "
                "is not made for rows of zeros"
            ) from error
        if made.shape != (1, n_parameters):
            shape = made.shape if self.batch else made.shape[1:]
            wanted = (1, n_parameters) if self.batch else (n_parameters,)
            raise ValueError(f"gradient must return numbers of shape {wanted}, got shape {shape}")

    def _asked(self, theta: Array, X: Array, y: Array) -> Array:
        """What the function says about a batch, or about the only row."""
        if self.batch:
            return np.array(self.gradient(theta, _locked(X), _locked(y)), dtype=np.float64)
        return np.array(self.gradient(theta, _locked(X[0]), float(y[0])), dtype=np.float64)[None]

    def _together(self, theta: Array, X: Array, y: Array) -> Array | None:
        try:
            with contained():
                found = self._asked(theta, X, y)
        except Exception:
            return None
        return found if found.shape == (len(X), theta.size) else None

    def _alone(self, theta: Array, x: Array, y: float) -> Array:
        try:
            with contained():
                found = self._asked(theta, x[None], np.array([y]))
        except Exception:
            return np.zeros(theta.size)
        return found[0] if found.shape == (1, theta.size) else np.zeros(theta.size)


def _locked(array: NDArray[Any]) -> Array:
    """A copy that cannot be written to."""
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def shrunk(rows: Array, bound: float) -> Array:
    """Every row scaled down to norm ``bound``, exactly, not only up to rounding; 0 where it is not finite.

    A computed norm of p numbers is off by a relative (p + 4) 2^-53, and a product rounds once more: rows are scaled to
    a norm that is lower by more than that (docs/proofs/own-losses.md, section 2).
    """
    finite = np.where(np.all(np.isfinite(rows), axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(finite).max(axis=1, initial=0.0), 2.0**-1000)[:, None]
    units = finite / largest  # squares of entries up to 1e308 must not overflow
    norms = np.sqrt(np.square(units).sum(axis=1))[:, None]
    inner = bound * (1 - (rows.shape[1] + 16) * _UNIT)
    with np.errstate(over="ignore"):
        short = norms * largest <= inner
    return np.where(short, finite, units * (inner / np.maximum(norms, 1.0)))
