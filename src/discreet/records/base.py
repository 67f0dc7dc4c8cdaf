"""The interface of bounded rows: sums over all of them, for any storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array
from discreet.losses import Loss
from discreet.records.bounds import Bounds, gradient_rounding

if TYPE_CHECKING:
    from discreet.records.arrays import ArrayRecords


class Records(ABC):
    """The clipped records v_i = s_i (x_i, 1) with their labels y_i.

    Every sum runs over all records, in float64, in an order that depends on public sizes only. A null record has
    s_i = 0 and adds 0 to every sum.

    Attributes
    ----------
    bounds : Bounds
        The public bounds on rows, enforced by clipping.
    n_samples, n_columns, n_features : int
        Number of records, of columns of X, and length of a record (with the intercept, which comes last).
    sparse : bool
        Whether rows are stored in CSR matrices.
    whole : bool
        Whether the rows are in memory in one piece, for ``in_memory``.
    labels : array of shape (n_samples,)
        Labels in the form the loss expects. Do not modify.
    compiles_first : bool
        Whether passes over these records use compiled code that nobody has compiled yet.

    Privacy
    -------
    Each record is a function of its own row, and its exact norm is at most ``bounds.feature_norm``.
    ``gradient_rounding`` bounds the distance between a computed sum of gradients and the exact one
    (docs/proofs/rounding.md). Nothing here adds noise: sums must only be passed to a mechanism.
    """

    bounds: Bounds
    n_samples: int
    n_columns: int
    n_features: int
    sparse: bool
    whole: ClassVar[bool]
    labels: NDArray[Any]
    compiles_first: bool = False

    @abstractmethod
    def with_labels(self, y: ArrayLike) -> Self:
        """Return the same rows with other labels."""

    # -- sums ----------------------------------------------------------------------------------------------

    @abstractmethod
    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """Return the sum of losses and the sum of their gradients; the gradient has the shape of theta."""

    def gradient(self, loss: Loss, theta: ArrayLike) -> Array:
        """Return the sum of gradients alone, in the shape of theta."""
        return self.value_and_gradient(loss, theta)[1]

    def gradients_together(self, labeled: Sequence[Records], loss: Loss) -> Callable[[Array], Array] | None:
        """Return the map from a point per model to the sum of gradients per model, to the last bit that of each alone.

        Models are these rows with the labels of ``labeled``. None if one pass over the rows cannot find all sums.
        """
        return None

    @abstractmethod
    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """Return the map v -> H v for the Hessian of the summed loss at theta."""

    @abstractmethod
    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """Return the Hessian of the summed loss as a matrix with theta.size rows; dense records only.

        ``every`` > 1 estimates it from every ``every``-th record. ``smoothing`` > 0 replaces f''(t) by the slope of f'
        over [t - smoothing, t + smoothing], which smooths the corner of a hinge.
        """

    @abstractmethod
    def mean_class_hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1) -> Array:
        """Return sum_i (1 - |q_i|^2) / (K - 1) v_i v_i^T: a softmax's Hessian averaged over its outputs."""

    @abstractmethod
    def weighted_sum(self, weights: ArrayLike) -> Array:
        """Return sum_i w_i v_i for one finite weight per record; weights of null records are ignored."""

    @abstractmethod
    def gram(self, weights: ArrayLike | None = None) -> Array:
        """Return sum_i w_i v_i v_i^T for nonnegative weights, all 1 by default; symmetric up to rounding."""

    # -- records where they are ----------------------------------------------------------------------------

    @abstractmethod
    def map_rows(
        self, make: Callable[..., ArrayRecords], *arguments: Any, width: int, bounds: Bounds, sparse: bool
    ) -> Records:
        """Apply ``make(rows, *arguments)`` to every part in memory; the new records stay where the part is.

        ``width``, ``bounds`` and ``sparse`` describe the result: number of columns, bounds, kind of matrix.
        """

    @abstractmethod
    def sum_rows(self, question: Callable[..., Array], *arguments: Any) -> Array:
        """Return the sum of ``question(rows, *arguments)`` over all parts in memory."""

    @abstractmethod
    def in_memory(self) -> ArrayRecords:
        """Return these records for solvers that read single rows; raise if they are stored in parts."""

    # -- rounding ------------------------------------------------------------------------------------------

    @abstractmethod
    def additions(self, loss: Loss) -> int:
        """Return the most additions that a record's term passes through in ``value_and_gradient``."""

    def gradient_rounding(self, loss: Loss, theta_norm: float) -> float:
        """Bound the L2 error of ``value_and_gradient``'s gradient at any theta of this norm."""
        sizes = self.n_samples, self.n_features
        radius = self.bounds.feature_norm
        return gradient_rounding(loss, *sizes, radius, theta_norm, self.additions(loss))
