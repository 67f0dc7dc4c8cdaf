"""Mirror maps: strongly convex potentials paired with sets, with the constants of their certificates.

A potential Psi is 1-strongly convex in some norm over the set. The excess risk of mirror descent depends on the range
of Psi, and on noise only in the dual norm, which for L1-like sets grows with log p instead of p. The constants affect
accuracy only, never privacy. Sources and proofs: docs/proofs/mirror-descent.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import gammaln

from discreet._typing import Array
from discreet.sets import Geometry, GroupedL1Ball, L1Ball, NuclearBall, Simplex, VertexPolytope
from discreet.sets.base import decreasing_root


@runtime_checkable
class Potential(Protocol):
    """The interface of a mirror map. ``state`` is whatever the potential needs to remember."""

    name: ClassVar[str]

    def check(self, geometry: Geometry) -> None:
        """Raise ``ValueError`` if the potential does not support the set."""
        ...

    def range(self, geometry: Geometry) -> float:
        """Return the largest Bregman divergence of a point of the set from the start."""
        ...

    def noise_square(self, geometry: Geometry) -> float:
        """Bound E |g|_*^2 for a standard Gaussian g, in the dual norm."""
        ...

    def record_norm(self, geometry: Geometry, entry_bound: float, feature_norm: float) -> float:
        """Bound |v|_* for records with these bounds on entries and Euclidean norm."""
        ...

    def ridge(self, geometry: Geometry) -> float:
        """Return the largest |x|_2^2 for differences x of unit norm."""
        ...

    def start(self, geometry: Geometry) -> tuple[Array, Any]:
        """Return the minimizer of Psi over the set, and the first state."""
        ...

    def step(self, geometry: Geometry, theta: Array, state: Any, move: Array) -> tuple[Array, Any]:
        """Return argmin over the set of <move, x> + Psi(x) - <grad Psi(theta), x>, and the next state."""
        ...


@dataclass(frozen=True)
class SquaredNorm:
    """Psi = |theta - center|_2^2 / 2: projected gradient descent, over every set.

    >>> from discreet.sets import L2Ball
    >>> SquaredNorm().range(L2Ball(2.0, 5))
    2.0
    """

    name: ClassVar[str] = "squared-norm"

    def check(self, geometry: Geometry) -> None:
        """Accept every set."""

    def range(self, geometry: Geometry) -> float:
        """Half the squared distance of the farthest point."""
        radius = geometry.diameter(2.0)
        if not np.any(geometry.center()):
            radius = min(radius, geometry.radius(2.0))
        return radius**2 / 2

    def noise_square(self, geometry: Geometry) -> float:
        """E |g|_2^2 = p."""
        return float(geometry.n_features)

    def record_norm(self, geometry: Geometry, entry_bound: float, feature_norm: float) -> float:
        """The Euclidean norm."""
        return feature_norm

    def ridge(self, geometry: Geometry) -> float:
        """The norm is the Euclidean one."""
        return 1.0

    def start(self, geometry: Geometry) -> tuple[Array, Any]:
        """The center."""
        return geometry.center(), None

    def step(self, geometry: Geometry, theta: Array, state: Any, move: Array) -> tuple[Array, Any]:
        """project(theta - move)."""
        return geometry.project(theta - move), None


@dataclass(frozen=True)
class Entropy:
    """Negative entropy of weights on the vertices of a polytope: exponentiated gradient.

    theta = size w for the simplex, size (w_+ - w_-) with 2p weights for the L1 ball, and sum_i w_i vertex_i for a list
    of vertices. The norm is |w|_1, and the dual norm of a gradient g is max_i |<vertex_i, g>|.

    >>> from discreet.sets import L1Ball
    >>> round(Entropy().range(L1Ball(3.0, 50)), 4)  # log 100
    4.6052
    """

    name: ClassVar[str] = "entropy"

    def check(self, geometry: Geometry) -> None:
        """Accept sets with vertices."""
        if not isinstance(geometry, Simplex | L1Ball | VertexPolytope):
            raise ValueError(
                f"the entropy potential is for Simplex, L1Ball and VertexPolytope, not for {type(geometry).__name__}; "
                "use 'q-norm' or 'squared-norm'"
            )

    def range(self, geometry: Geometry) -> float:
        """log of the number of vertices."""
        self.check(geometry)
        assert isinstance(geometry, Simplex | L1Ball | VertexPolytope)
        return math.log(max(2, geometry.n_vertices))

    def noise_square(self, geometry: Geometry) -> float:
        """E max|<vertex, g>|^2 <= (E max|<vertex, g>|)^2 + radius^2, by the Gaussian Poincare inequality."""
        radius = geometry.radius(2.0)
        if isinstance(geometry, VertexPolytope):
            width = math.sqrt(2 * math.log(2 * geometry.n_vertices))
        else:
            width = L1Ball(1.0, geometry.n_features).gaussian_width()
        return radius**2 * (width**2 + 1)

    def record_norm(self, geometry: Geometry, entry_bound: float, feature_norm: float) -> float:
        """|<vertex, v>| in the better pair of norms."""
        return min(geometry.radius(1.0) * entry_bound, geometry.radius(2.0) * feature_norm)

    def ridge(self, geometry: Geometry) -> float:
        """|sum_i x_i vertex_i|_2 <= radius |x|_1."""
        return geometry.radius(2.0) ** 2

    def start(self, geometry: Geometry) -> tuple[Array, Any]:
        """Equal weights; the state is the sum of all moves, which determines the weights."""
        return geometry.center(), np.zeros(geometry.n_features)

    def step(self, geometry: Geometry, theta: Array, state: Any, move: Array) -> tuple[Array, Any]:
        """Weights proportional to exp(-<vertex, sum of moves>)."""
        total = state + move
        with np.errstate(under="ignore"):
            if isinstance(geometry, L1Ball):  # both signs at once
                logits = -geometry.size * total
                peak = np.abs(logits).max()
                plus, minus = np.exp(logits - peak), np.exp(-logits - peak)
                return geometry.size * (plus - minus) / (plus.sum() + minus.sum()), total
            assert isinstance(geometry, Simplex | VertexPolytope)
            logits = -geometry.vertex_scores(total)
            weights = np.exp(logits - logits.max())
            weights /= weights.sum()
            return geometry.combination(weights), total


@dataclass(frozen=True)
class QNorm:
    """Psi = |m|_q^2 / (2 (q - 1)) of the magnitudes m: entries, norms of groups, or singular values.

    q = 1 + 1 / log(number of magnitudes), at most 2: 1-strongly convex in |m|_q (Ball, Carlen and Lieb, 1994), which
    is within a factor e of |m|_1, so the dual norm is almost the largest magnitude.

    >>> from discreet.sets import L1Ball
    >>> round(QNorm().exponent(L1Ball(1.0, 1000)), 4)
    1.1448
    """

    name: ClassVar[str] = "q-norm"

    def check(self, geometry: Geometry) -> None:
        """Accept balls that bound a sum of magnitudes."""
        if not isinstance(geometry, L1Ball | GroupedL1Ball | NuclearBall):
            raise ValueError(
                f"the q-norm potential is for L1Ball, GroupedL1Ball and NuclearBall, not for "
                f"{type(geometry).__name__}; use 'squared-norm', or 'entropy' for a Simplex"
            )

    @staticmethod
    def _count(geometry: Geometry) -> int:
        assert isinstance(geometry, L1Ball | GroupedL1Ball | NuclearBall)
        return len(geometry.magnitudes(geometry.center()))

    def exponent(self, geometry: Geometry) -> float:
        """q."""
        self.check(geometry)
        return 1 + 1 / max(1.0, math.log(self._count(geometry)))

    def range(self, geometry: Geometry) -> float:
        """size^2 / (2 (q - 1)), because |m|_q <= |m|_1."""
        return float(geometry.radius(math.inf) ** 2 / (2 * (self.exponent(geometry) - 1)))

    def noise_square(self, geometry: Geometry) -> float:
        """(E |m(g)|_r^r)^(2/r), r the dual exponent, by chi moments; for matrices a spectral bound, or E |g|_2^2."""
        r = _dual(self.exponent(geometry))
        if isinstance(geometry, NuclearBall):
            operator = (math.sqrt(geometry.shape[0]) + math.sqrt(geometry.shape[1])) ** 2 + 1
            return float(min(operator * min(geometry.shape) ** (2 / r), geometry.n_features))
        full, rest = geometry.n_features, 0
        degree = 1
        if isinstance(geometry, GroupedL1Ball):
            degree = geometry.group_size
            full, rest = divmod(geometry.n_features, degree)
        logs = [math.log(full) + _log_chi_moment(degree, r)] if full else []
        logs += [_log_chi_moment(rest, r)] if rest else []
        return math.exp(2 / r * float(np.logaddexp.reduce(logs)))

    def record_norm(self, geometry: Geometry, entry_bound: float, feature_norm: float) -> float:
        """|m(v)|_r <= |v|_2, and for entries at most p^(1/r) times the largest."""
        r = _dual(self.exponent(geometry))
        if isinstance(geometry, L1Ball):
            return float(min(feature_norm, entry_bound * geometry.n_features ** (1 / r)))
        return feature_norm

    def ridge(self, geometry: Geometry) -> float:
        """|theta|_2 = |m|_2 <= |m|_q."""
        return 1.0

    def start(self, geometry: Geometry) -> tuple[Array, Any]:
        """The origin, whose image under grad Psi is the origin."""
        self.check(geometry)
        return geometry.center(), np.zeros(geometry.n_features)

    def step(self, geometry: Geometry, theta: Array, state: Any, move: Array) -> tuple[Array, Any]:
        """Subtract in the dual, threshold the magnitudes until they fit, and map back; finds one root."""
        assert isinstance(geometry, L1Ball | GroupedL1Ball | NuclearBall)
        q = self.exponent(geometry)
        target = state - move
        magnitudes = geometry.magnitudes(target)

        def primal(threshold: float) -> Array:
            return _dual_gradient(np.maximum(magnitudes - threshold, 0.0), q)

        def excess(threshold: float) -> float:
            return float(primal(threshold).sum()) - geometry.size

        threshold = 0.0
        if excess(0.0) > 0:
            threshold = decreasing_root(excess, 0.0, float(magnitudes.max()))
        chosen = primal(threshold)
        theta = geometry.with_magnitudes(target, chosen)
        return theta, geometry.with_magnitudes(target, _gradient(chosen, q))


def potential(name: str) -> Potential:
    """Return the potential with this name.

    >>> potential("entropy")
    Entropy()
    """
    known: dict[str, Potential] = {kind.name: kind() for kind in (SquaredNorm, Entropy, QNorm)}
    if name not in known:
        raise ValueError(f"unknown potential {name!r}; choose one of {sorted(known)}")
    return known[name]


def _dual(q: float) -> float:
    return q / (q - 1)


def _log_chi_moment(degree: int, r: float) -> float:
    """Return log E chi^r for a chi variable with ``degree`` degrees of freedom."""
    return r / 2 * math.log(2) + float(gammaln((degree + r) / 2) - gammaln(degree / 2))


def _gradient(magnitudes: Array, q: float) -> Array:
    """Return grad of |m|_q^2 / (2 (q - 1)), scaled by the largest magnitude to avoid overflow."""
    largest = float(magnitudes.max())
    if largest == 0:
        return magnitudes
    scaled = magnitudes / largest
    norm = float(np.sum(scaled**q)) ** (1 / q)
    return np.asarray(largest * norm ** (2 - q) * scaled ** (q - 1) / (q - 1))


def _dual_gradient(magnitudes: Array, q: float) -> Array:
    """Return the inverse of ``_gradient``: grad of (q - 1) |m|_r^2 / 2."""
    largest = float(magnitudes.max())
    if largest == 0:
        return magnitudes
    r = _dual(q)
    with np.errstate(under="ignore"):
        scaled = magnitudes / largest
        norm = float(np.sum(scaled**r)) ** (1 / r)
        return np.asarray((q - 1) * largest * norm ** (2 - r) * scaled ** (r - 1))
