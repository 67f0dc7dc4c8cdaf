"""What solvers may ask of bounded rows: sums over all of them, wherever they are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array
from discreet.losses import Loss
from discreet.records.bounds import Bounds
from discreet.records.kernels import passes

if TYPE_CHECKING:
    from discreet.records.arrays import ArrayRecords


class Records(ABC):
    """The clipped records v_i = s_i (x_i, 1) with their labels y_i.

    Every sum runs over all records, in float64, in an order that depends on public sizes only. A null record has
    s_i = 0 and adds 0 to every sum.

    Attributes
    ----------
    bounds : Bounds
        The public promise about rows, which the clip enforces.
    n_samples, n_columns, n_features : int
        Number of records, of columns of X, and length of a record (with the intercept, which comes last).
    sparse : bool
        Whether rows are kept in CSR matrices.
    whole : bool
        Whether the rows are in memory in one piece, for ``in_memory``.
    labels : array of shape (n_samples,)
        Labels as the loss wants them. Not to be changed.

    Privacy
    -------
    Each record is a function of its own row, and its exact norm is at most ``bounds.feature_norm``.
    ``gradient_rounding`` bounds the distance of a computed sum of gradients from the exact one
    (docs/proofs/rounding.md). Nothing here adds noise: sums go to a mechanism and nowhere else.
    """

    bounds: Bounds
    n_samples: int
    n_columns: int
    n_features: int
    sparse: bool
    whole: ClassVar[bool]

    @property
    @abstractmethod
    def labels(self) -> NDArray[Any]:
        """One label per record. Not to be changed."""

    @abstractmethod
    def with_labels(self, y: ArrayLike) -> Self:
        """The same rows with other labels."""

    # -- sums ----------------------------------------------------------------------------------------------

    @abstractmethod
    def value_and_gradient(self, loss: Loss, theta: ArrayLike) -> tuple[float, Array]:
        """The sum of losses and the sum of their gradients; the gradient has the shape of theta."""

    @abstractmethod
    def hessian_product(self, loss: Loss, theta: ArrayLike) -> Callable[[Array], Array]:
        """The map v -> H v for the Hessian of the summed loss at theta."""

    @abstractmethod
    def hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1, smoothing: float = 0.0) -> Array:
        """The Hessian of the summed loss as a matrix with theta.size rows; dense records only.

        ``every`` > 1 estimates it from every ``every``-th record. ``smoothing`` > 0 replaces f''(t) by the
        slope of f' over [t - smoothing, t + smoothing], which sees the corner of a hinge before reaching it.
        """

    @abstractmethod
    def mean_class_hessian(self, loss: Loss, theta: ArrayLike, *, every: int = 1) -> Array:
        """sum_i (1 - |q_i|^2) / (K - 1) v_i v_i^T: a softmax's Hessian averaged over its outputs."""

    @abstractmethod
    def weighted_sum(self, weights: ArrayLike) -> Array:
        """sum_i w_i v_i for one finite weight per record; weights of null records are ignored."""

    @abstractmethod
    def gram(self, weights: ArrayLike | None = None) -> Array:
        """sum_i w_i v_i v_i^T for weights of at least 0, all 1 by default; symmetric up to rounding."""

    # -- records where they are ----------------------------------------------------------------------------

    @abstractmethod
    def map_rows(
        self, make: Callable[..., ArrayRecords], *arguments: Any, width: int, bounds: Bounds, sparse: bool
    ) -> Records:
        """The records that ``make(rows, *arguments)`` makes of every part in memory; they stay where the part is.

        ``width``, ``bounds`` and ``sparse`` say what is made: number of columns, promise, kind of matrix.
        """

    @abstractmethod
    def sum_rows(self, question: Callable[..., Array], *arguments: Any) -> Array:
        """The sum of ``question(rows, *arguments)`` over all parts in memory."""

    @abstractmethod
    def in_memory(self) -> ArrayRecords:
        """These records, for solvers that look at single rows; refused if they are kept in parts."""

    # -- rounding ------------------------------------------------------------------------------------------

    @abstractmethod
    def additions(self, loss: Loss) -> int:
        """The most additions that a record's term passes through in ``value_and_gradient``."""

    def gradient_rounding(self, loss: Loss, theta_norm: float) -> float:
        """A proved bound on the L2 error of ``value_and_gradient``'s gradient at any theta of this norm."""
        sizes = self.n_samples, self.n_features
        radius = self.bounds.feature_norm
        return passes.gradient_rounding(loss, *sizes, radius, theta_norm, self.additions(loss))
