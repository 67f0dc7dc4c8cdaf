"""Products of blocks of rows with a few vectors, in the widest vectors of the processor.

Compilers turn plain loops into vectors of half the width of server processors, and do not keep sums of several rows
and several classes in registers. So the two innermost loops are generated here in LLVM: a tile of sums stays in
registers, and every loaded number takes part in several products. While a block is in use, the next one is prefetched.

The number of columns and the kind of processor fix the order of summation. It does not depend on the position of a
row, so equal rows have equal dot products. No read passes the end of a row: the last vector of a row overlaps the one
before, and entries used already are masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.records.kernels.numba_tools import REGISTERS, WIDTH, code, generated

ROWS = 4  # rows processed together
SIZES = (5, 3, 2, 1) if REGISTERS == 32 else (3, 2, 1)  # classes in a tile
_STRIP = 4  # vectors of columns summed over the rows together
_PACE = 16  # entries prefetched while ROWS vectors are used
_NARROW = (
    1024  # up to so many columns, a single class takes twice the rows and vectors; wider rows wait for memory
)
_PANEL = 384  # columns of theta that fit into the first cache together with rows; a multiple of WIDTH

_I32, _I64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_ZERO = ir.Constant(_VECTOR, [0.0] * WIDTH)


def _number(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def _shuffle(builder: Any, a: Any, b: Any, places: Sequence[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(places)), list(places)))


def _everywhere(builder: Any, value: Any) -> Any:
    """Return a vector that repeats one number."""
    vector = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    vector = builder.insert_element(vector, value, ir.Constant(_I32, 0))
    return _shuffle(builder, vector, vector, [0] * WIDTH)


def _load(builder: Any, pointer: Any, index: Any) -> Any:
    """Load a vector of doubles from any address; singles are widened."""
    entry = pointer.type.pointee
    place = builder.bitcast(builder.gep(pointer, [index]), ir.VectorType(entry, WIDTH).as_pointer())
    vector = builder.load(place, align=8 if entry == _DOUBLE else 4)
    return vector if entry == _DOUBLE else builder.fpext(vector, _VECTOR)


def _add_to(builder: Any, pointer: Any, index: Any, vector: Any) -> None:
    place = builder.bitcast(builder.gep(pointer, [index]), vector.type.as_pointer())
    builder.store(builder.fadd(builder.load(place, align=8), vector), place, align=8)


def _add_product(builder: Any, total: Any, a: Any, b: Any) -> None:
    product = builder.fmul(a, b, flags=("contract",))
    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)


def _fetch(builder: Any, pointer: Any, index: Any) -> None:
    """Prefetch a cache line; any address is allowed."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    function = code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    flags = [ir.Constant(_I32, flag) for flag in (0, 2, 1)]  # to read; into the second cache; data
    builder.call(function, [builder.bitcast(builder.gep(pointer, [index]), byte), *flags])


def _fetch_ahead(builder: Any, pointer: Any, step: Any, ahead: Any, pace: Any, vectors: int) -> None:
    """Prefetch the lines that belong to a step of a loop, which uses so many vectors."""
    lines = vectors // ROWS * (2 if pointer.type.pointee == _DOUBLE else 1)  # of ``_PACE`` entries each time
    index = builder.add(ahead, builder.mul(step, pace))
    for line in range(lines):
        _fetch(
            builder,
            pointer,
            builder.add(index, builder.sdiv(builder.mul(pace, _number(line)), _number(lines))),
        )


def _last_vector(builder: Any, first: Any, stop: Any) -> tuple[Any, Any]:
    """Return the start of the last vector, which may not pass ``stop``, and a mask of its entries from ``first`` on."""
    begin = builder.sub(stop, _number(WIDTH))
    begin = builder.select(builder.icmp_signed("<", first, begin), first, begin)
    places = ir.Constant(ir.VectorType(_I64, WIDTH), list(range(WIDTH)))
    used = _everywhere(builder, builder.sub(first, begin))
    return begin, builder.icmp_signed(">=", places, used)


def _totals(builder: Any, vectors: list[Any]) -> Any:
    """Return the sums of up to ``WIDTH`` vectors, as one vector."""
    vectors = vectors + [ir.Constant(_VECTOR, ir.Undefined)] * (WIDTH - len(vectors))
    pairs = range(0, WIDTH, 2)
    # neighbors inside each pair of lanes ...
    low, step = [place for k in pairs for place in (k, WIDTH + k)], 1
    while len(vectors) > 1:
        high = [place + step for place in low]
        vectors = [
            builder.fadd(_shuffle(builder, a, b, low), _shuffle(builder, a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        low, step = [place for k in pairs for place in (2 * k, 2 * k + 1)], 2  # ... then pairs of lanes
    return vectors[0]


def _tile(builder: Any, n_classes: int, n_vectors: int) -> list[list[Any]]:
    """Return sums initialized to zero, which the compiler keeps in registers."""
    tile = [[code.alloca_once(builder, _VECTOR) for _ in range(n_vectors)] for _ in range(n_classes)]
    for total in (total for sums in tile for total in sums):
        builder.store(_ZERO, total)
    return tile


def _rows_of(context: Any, builder: Any, kind: Any, array: Any, first: Any, count: int) -> list[Any]:
    """Return pointers to consecutive rows of a matrix in C order."""
    matrix = context.make_array(kind)(context, builder, array)
    width = builder.extract_value(matrix.shape, 1)
    starts = [builder.mul(builder.add(first, _number(k)), width) for k in range(count)]
    return [builder.gep(matrix.data, [start]) for start in starts]


_INT = types.int64


@generated
def _tile_dots(typing, X, row, n, first, stop, theta, c, size, t, k, ahead, pace):  # type: ignore[no-untyped-def]
    """Set t[c + b, k + a] += <x_{row + a}, theta_{c + b}> over columns first .. stop, for a < n and b < size.

    ``n`` is ``ROWS``, or twice that for a size of 1.
    """
    signature = types.void(X, _INT, _INT, _INT, _INT, theta, _INT, _INT, t, _INT, _INT, _INT)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        X, row, n, first, stop, theta, c, size, t, k, ahead, pace = arguments
        kinds = signature.args
        base = _rows_of(context, builder, kinds[0], X, _number(0), 1)[0]
        whole = builder.sdiv(builder.sub(builder.sub(stop, first), _number(1)), _number(WIDTH))
        edge = builder.add(first, builder.mul(whole, _number(WIDTH)))
        last, unused = _last_vector(builder, edge, stop)
        for n_classes, n_rows in [*((size, ROWS) for size in SIZES), (1, 2 * ROWS)]:
            fits = builder.and_(
                builder.icmp_signed("==", size, _number(n_classes)),
                builder.icmp_signed("==", n, _number(n_rows)),
            )
            with builder.if_then(fits):
                xs = _rows_of(context, builder, kinds[0], X, row, n_rows)
                thetas = _rows_of(context, builder, kinds[5], theta, c, n_classes)
                outputs = _rows_of(context, builder, kinds[8], t, c, n_classes)
                tile = _tile(builder, n_classes, n_rows)
                with code.for_range(builder, whole, intp=_I64) as loop:
                    j = builder.add(first, builder.mul(loop.index, _number(WIDTH)))
                    entries = [_load(builder, x, j) for x in xs]
                    _fetch_ahead(builder, base, loop.index, ahead, pace, n_rows)
                    for sums, weights in zip(tile, thetas, strict=True):
                        weight = _load(builder, weights, j)
                        for total, entry in zip(sums, entries, strict=True):
                            _add_product(builder, total, entry, weight)
                entries = [_load(builder, x, last) for x in xs]
                for sums, weights in zip(tile, thetas, strict=True):
                    weight = builder.select(unused, _load(builder, weights, last), _ZERO)
                    for total, entry in zip(sums, entries, strict=True):
                        _add_product(builder, total, entry, weight)
                vectors = [builder.load(total) for sums in tile for total in sums]
                together = min(WIDTH, ROWS)
                for start in range(0, len(vectors), WIDTH):
                    found = vectors[start : start + WIDTH]
                    totals = _totals(builder, found)
                    for part in range(0, len(found), together):
                        b, a = divmod(start + part, n_rows)
                        piece = _shuffle(builder, totals, totals, range(part, part + together))
                        _add_to(builder, outputs[b], builder.add(k, _number(a)), piece)
        return context.get_dummy_value()

    return signature, generate


@generated
def _tile_sums(typing, X, row, m, first, count, t, c, size, total, ahead, pace):  # type: ignore[no-untyped-def]
    """Set total[c + b] += sum over k < m of t[c + b, k] x_{row + k}, on ``count`` vectors of columns from ``first``."""
    signature = types.void(X, _INT, _INT, _INT, _INT, t, _INT, _INT, total, _INT, _INT)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        X, row, m, first, count, t, c, size, total, ahead, pace = arguments
        kinds = signature.args
        start = _rows_of(context, builder, kinds[0], X, row, 1)[0]
        base = _rows_of(context, builder, kinds[0], X, _number(0), 1)[0]
        width = builder.extract_value(context.make_array(kinds[0])(context, builder, X).shape, 1)
        for n_classes in SIZES:
            strip = _STRIP * (2 if n_classes == 1 else 1)
            for n_vectors in range(1, strip + 1):
                fits = builder.and_(
                    builder.icmp_signed("==", size, _number(n_classes)),
                    builder.icmp_signed("==", count, _number(n_vectors)),
                )
                with builder.if_then(fits):
                    coefficients = _rows_of(context, builder, kinds[5], t, c, n_classes)
                    totals = _rows_of(context, builder, kinds[8], total, c, n_classes)
                    columns = [builder.add(first, _number(WIDTH * v)) for v in range(n_vectors)]
                    columns[-1], unused = _last_vector(builder, columns[-1], width)
                    tile = _tile(builder, n_classes, n_vectors)
                    with code.for_range(builder, m, intp=_I64) as loop:
                        x = builder.gep(start, [builder.mul(loop.index, width)])
                        entries = [_load(builder, x, column) for column in columns]
                        _fetch_ahead(builder, base, loop.index, ahead, pace, strip)
                        for sums, values in zip(tile, coefficients, strict=True):
                            value = builder.load(builder.gep(values, [loop.index]))
                            weight = _everywhere(builder, value)
                            for partial, entry in zip(sums, entries, strict=True):
                                _add_product(builder, partial, entry, weight)
                    for sums, output in zip(tile, totals, strict=True):
                        vectors = [builder.load(partial) for partial in sums]
                        vectors[-1] = builder.select(unused, vectors[-1], _ZERO)
                        for vector, column in zip(vectors, columns, strict=True):
                            _add_to(builder, output, column, vector)
        return context.get_dummy_value()

    return signature, generate


@compiled()
def _add_dots(
    X: Any,
    start: int,
    m: int,
    theta: Array,
    sizes: NDArray[np.int64],
    t: Array,
    place: int,
    ahead: int,
    stop: int,
) -> int:
    """Set t[c, place + k] += <x_{start + k}, theta_c> for k < m, a multiple of ``ROWS``.

    Also prefetches the entries of X from ``ahead`` to ``stop`` and returns the next position.
    """
    d = X.shape[1]
    more = 2 if len(theta) == 1 and d <= _NARROW else 1
    pace = more * max(8, _PACE // len(sizes))
    for first in range(0, d, _PANEL):
        last = min(first + _PANEL, d)
        k = 0
        while k < m:
            n = more * ROWS if k + more * ROWS <= m else ROWS
            c = 0
            for size in sizes:
                if ahead >= stop:
                    pace = 0
                _tile_dots(X, start + k, n, first, last, theta, c, size, t, place + k, ahead, pace)
                ahead += (last - first) // WIDTH * pace
                c += size
            k += n
    return ahead


@compiled()
def block_dots(X: Any, start: int, m: int, theta: Array, sizes: NDArray[np.int64], t: Array) -> int:
    """Set t[c, k] = <(x_{start + k}, 1), theta_c> for k < m; theta ``by_class``, X ``wide``.

    Returns the position in the next block up to which entries were prefetched, for ``block_sums``.
    """
    d = X.shape[1]
    whole = m - m % ROWS
    for c in range(len(theta)):
        for k in range(whole + ROWS if whole < m else m):
            t[c, k] = theta[c, d]
    ahead = (start + m) * d
    if whole < m:
        tail = np.zeros((ROWS, d), X.dtype)
        for k in range(m - whole):
            for j in range(d):
                tail[k, j] = X[start + whole + k, j]
        _add_dots(tail, 0, ROWS, theta, sizes, t, whole, 0, 0)
    return _add_dots(X, start, whole, theta, sizes, t, 0, ahead, min(X.size, ahead + m * d))


@compiled()
def block_sums(
    X: Any, start: int, m: int, t: Array, sizes: NDArray[np.int64], total: Array, ahead: int
) -> None:
    """Set total[c] += sum over k < m of t[c, k] (x_{start + k}, 1); each sum is formed separately, then added."""
    d = X.shape[1]
    for c in range(len(total)):
        block = 0.0
        for k in range(m):
            block += t[c, k]
        total[c, d] += block
    vectors = -(-d // WIDTH)
    more = 2 if len(total) == 1 and d <= _NARROW else 1
    strips = -(-vectors // (_STRIP * more))
    stop, pace = min(X.size, (start + 2 * m) * d), more * max(8, _PACE // len(sizes))
    for strip in range(strips):
        first = strip * vectors // strips
        count = (strip + 1) * vectors // strips - first
        c = 0
        for size in sizes:
            if ahead >= stop:
                pace = 0
            _tile_sums(X, start, m, first * WIDTH, count, t, c, size, total, ahead, pace)
            ahead += m * pace
            c += size
