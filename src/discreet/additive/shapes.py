"""Shapes: what each bin of a column, or of a pair of columns, adds to a prediction. Everything here is released."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from discreet._typing import Array, Integers
from discreet.additive.bins import Bins
from discreet.additive.columns import Column
from discreet.display import charts
from discreet.tables.domains import Numeric
from discreet.tables.schema import Schema


@dataclass(frozen=True)
class Shape:
    """The shape of one column.

    Attributes
    ----------
    column : the column with its public domain.
    bins : its bins, with noisy counts.
    values : what each bin adds, of shape (bins, outputs); the last bin is that of missing cells if they have one.
    missing : what a missing cell adds if it has no bin, of shape (outputs,).
    margin : half the width of the noise band around every value of one output; None where there is no band.
    """

    column: Column
    bins: Bins
    values: Array
    missing: Array
    margin: Array | None = None

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.column.name

    def add_to(self, total: Array, codes: Integers) -> None:
        """Add to the predictions of records in these bins."""
        total += np.vstack([self.values, self.missing])[codes]

    def centered(self) -> tuple[Shape, Array]:
        """The shape without its mean over the noisy counts, and that mean."""
        mass = np.maximum(self.bins.counts, 0.0)
        total = float(mass.sum())
        mean = mass @ self.values / total if total > 0 else self.values.mean(axis=0)
        return replace(self, values=self.values - mean, missing=self.missing - mean), np.asarray(mean)

    def monotone(self, sign: int) -> Shape:
        """The nearest shape that rises (sign 1) or falls (-1), weighted by the noisy counts; it has no band."""
        inside = self.bins.n_bins
        mass = np.maximum(self.bins.counts[:inside], 1.0)
        values = self.values.copy()
        for output in range(values.shape[1]):
            values[:inside, output] = isotonic_regression(
                self.values[:inside, output], sample_weight=mass, increasing=sign > 0
            )
        return replace(self, values=values, margin=None)

    @property
    def importance(self) -> float:
        """Mean absolute value over the noisy counts."""
        mass = np.maximum(self.bins.counts, 0.0)
        return float(mass @ np.abs(self.values).mean(axis=1) / max(float(mass.sum()), 1.0))

    def bin_labels(self) -> list[str]:
        """The bins in words."""
        if self.column.is_range or not self.column.labels:
            edges = self._edges()
            names = [f"[{low:g}, {high:g})" for low, high in itertools.pairwise(edges)]
        else:
            members: list[list[str]] = [[] for _ in range(self.bins.n_bins)]
            for label, place in zip(self.column.labels, self.bins.places, strict=True):
                members[place].append(label)
            names = [", ".join(group) for group in members]
        return [*names, "missing"] if self.bins.missing else names

    def bin_range(self, places: Integers) -> str:
        """Neighboring bins of an ordered column, in words."""
        edges = self._edges()
        return f"[{edges[places[0]]:g}, {edges[places[-1] + 1]:g})"

    def _edges(self) -> list[float]:
        """All edges of an ordered column, from the lowest declared value to the highest."""
        domain = self.column.domain
        if isinstance(domain, Numeric):
            return [domain.lower, *(float(edge) for edge in self.bins.edges), domain.upper]
        return [-math.inf, *(float(edge) for edge in getattr(domain, "edges", ())), math.inf]

    def to_dict(self, outputs: Sequence[str] = ()) -> dict[str, Any]:
        """The shape as a table: one list per column of it, for ``pandas.DataFrame`` and alike."""
        table: dict[str, Any] = {"bin": self.bin_labels()}
        if self.column.ordered:
            edges = self._edges()
            none = [math.nan] * int(self.bins.missing)
            table |= {"lower": [*edges[:-1], *none], "upper": [*edges[1:], *none]}
        if self.values.shape[1] == 1:
            table["value"] = self.values[:, 0].tolist()
            if self.margin is not None:
                table |= {"low": (self.values[:, 0] - self.margin).tolist()}
                table |= {"high": (self.values[:, 0] + self.margin).tolist()}
        else:
            names = outputs or [str(k) for k in range(self.values.shape[1])]
            table |= {f"value {name}": self.values[:, k].tolist() for k, name in enumerate(names)}
        return table | {"count": self.bins.counts.tolist()}


@dataclass(frozen=True)
class PairShape:
    """The shape of two columns together.

    Attributes
    ----------
    columns : places of the two columns among all.
    coarse : for each of them, the coarse bin of every bin.
    values : what each pair of coarse bins adds, of shape (bins, bins, outputs); a missing cell adds nothing.
    """

    columns: tuple[int, int]
    coarse: tuple[Integers, Integers]
    values: Array

    def cells(self, codes: Sequence[Integers]) -> Integers:
        """The place of every record in the table, row by row; -1 where a cell is missing."""
        return pair_cells(self.coarse, [codes[place] for place in self.columns])

    def to_dict(self, shapes: Sequence[Shape]) -> dict[str, Any]:
        """The names of the columns, the bins along each side in words, and the values."""
        sides = [shapes[place] for place in self.columns]
        labels = [
            [
                " or ".join(np.array(side.bin_labels())[table == group])
                if not side.column.ordered
                else side.bin_range(np.flatnonzero(table == group))
                for group in range(int(table.max()) + 1)
            ]
            for side, table in zip(sides, self.coarse, strict=True)
        ]
        values = self.values[..., 0] if self.values.shape[2] == 1 else self.values
        return {"columns": [side.name for side in sides], "bins": labels, "values": values.tolist()}

    def add_to(self, total: Array, codes: Sequence[Integers]) -> None:
        """Add to the predictions of records in these bins."""
        outputs = self.values.shape[2]
        table = np.vstack([self.values.reshape(-1, outputs), np.zeros((1, outputs))])
        total += table[self.cells(codes)]


def pair_cells(coarse: tuple[Integers, Integers], codes: Sequence[NDArray[Any]]) -> Integers:
    """The place of every record in the table of two columns, row by row; -1 where a cell is missing."""
    first, second = (np.append(table, -1)[code] for table, code in zip(coarse, codes, strict=True))
    width = int(coarse[1].max()) + 1
    return np.where((first >= 0) & (second >= 0), first * width + second, -1)


def predictions(
    intercept: Array, shapes: Sequence[Shape], pairs: Sequence[PairShape], codes: Sequence[Integers]
) -> Array:
    """The raw predictions of records, of shape (rows, outputs), summed in a fixed order.

    Each is a function of its own row, to the last bit.
    """
    total = np.tile(intercept, (len(codes[0]), 1))
    for shape, code in zip(shapes, codes, strict=True):
        shape.add_to(total, code)
    for pair in pairs:
        pair.add_to(total, codes)
    return total


@dataclass(frozen=True)
class AdditiveModel:
    """All that an additive model consists of; predictions need nothing else.

    Attributes
    ----------
    intercept : of shape (outputs,).
    shapes : of all columns, in order.
    pairs : of pairs of columns.
    """

    intercept: Array
    shapes: tuple[Shape, ...]
    pairs: tuple[PairShape, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and domains of the columns."""
        return tuple(shape.column for shape in self.shapes)

    def raw(self, cells: Sequence[NDArray[Any]]) -> Array:
        """The raw predictions of rows, of shape (rows, outputs)."""
        codes = [shape.bins.codes(values) for shape, values in zip(self.shapes, cells, strict=True)]
        return predictions(self.intercept, self.shapes, self.pairs, codes)

    def scaled(self, factor: float, shift: float | Array) -> AdditiveModel:
        """The model of predictions times ``factor`` plus ``shift``."""
        shapes = tuple(
            replace(
                shape,
                values=factor * shape.values,
                missing=factor * shape.missing,
                margin=None if shape.margin is None else abs(factor) * shape.margin,
            )
            for shape in self.shapes
        )
        pairs = tuple(replace(pair, values=factor * pair.values) for pair in self.pairs)
        return AdditiveModel(factor * self.intercept + shift, shapes, pairs)

    def with_shape(self, place: int, shape: Shape) -> AdditiveModel:
        """The model with another shape of one column."""
        return replace(self, shapes=(*self.shapes[:place], shape, *self.shapes[place + 1 :]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The model as arrays of numbers and one of words, for a file."""
        schema = Schema({shape.name: shape.column.domain for shape in self.shapes})
        outputs = len(self.intercept)
        return {
            "schema": np.array([json.dumps(schema.to_dict())]),
            "intercept": self.intercept,
            "bins": np.array([shape.bins.n_bins for shape in self.shapes], dtype=np.int64),
            "edges": _joined([shape.bins.edges for shape in self.shapes], np.float64),
            "places": _joined([shape.bins.places for shape in self.shapes], np.int64),
            "counts": _joined([shape.bins.counts for shape in self.shapes], np.float64),
            "values": np.concatenate([shape.values for shape in self.shapes]),
            "missing": np.array([shape.missing for shape in self.shapes]),
            "margins": _joined(
                [
                    np.full(shape.bins.size, _NO_BAND) if shape.margin is None else shape.margin
                    for shape in self.shapes
                ],
                np.float64,
            ),
            "pairs": np.array([pair.columns for pair in self.pairs], dtype=np.int64).reshape(-1, 2),
            "coarse": _joined([table for pair in self.pairs for table in pair.coarse], np.int64),
            "pair_values": _joined([pair.values.ravel() for pair in self.pairs], np.float64).reshape(
                -1, outputs
            ),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> AdditiveModel:
        """The model that `to_arrays` described; ``ValueError``, ``KeyError`` or ``TypeError`` for anything else."""
        schema = Schema.from_dict(json.loads(str(np.asarray(arrays["schema"])[0])))
        columns = [Column(name, domain) for name, domain in schema.columns.items()]
        named = ("edges", "places", "counts", "values", "coarse", "pair_values")
        read = {name: _Reader(arrays[name]) for name in named}
        if "margins" in arrays:  # models of 0.2.0 have none
            read["margins"] = _Reader(arrays["margins"])
        shapes = []
        for one, n_bins, missing in zip(columns, arrays["bins"].tolist(), arrays["missing"], strict=True):
            edges = read["edges"].next(n_bins - 1 if one.is_range else 0)
            places = read["places"].next(0 if one.is_range else one.n_levels)
            size = n_bins + int(one.marks_missing)
            bins = Bins(edges, places, read["counts"].next(size), n_bins, one.marks_missing)
            if len(places) and not (places.min() >= 0 and places.max() < n_bins):
                raise ValueError("categories are in bins that do not exist")
            margin = read["margins"].next(size) if "margins" in read else np.full(size, _NO_BAND)
            if not ((margin >= 0).all() or (margin == _NO_BAND).all()):
                raise ValueError("a band has no width")
            kept = margin if (margin >= 0).all() else None
            shapes.append(Shape(one, bins, read["values"].next(size), missing, kept))
        pairs = []
        for first, second in arrays["pairs"].tolist():
            coarse = tuple(read["coarse"].next(shapes[place].bins.size) for place in (first, second))
            sizes = [int(table.max()) + 1 for table in coarse]
            values = read["pair_values"].next(math.prod(sizes))
            pairs.append(PairShape((first, second), (coarse[0], coarse[1]), values.reshape(*sizes, -1)))
        for reader in read.values():
            reader.end()
        model = cls(arrays["intercept"], tuple(shapes), tuple(pairs))
        outputs = model.intercept.shape
        every = [*(shape.values for shape in shapes), *(pair.values for pair in pairs)]
        if len(outputs) != 1 or any(part.shape[-1:] != outputs for part in every):
            raise ValueError("shapes and intercept do not belong together")
        if any(shape.missing.shape != outputs or shape.values.ndim != 2 for shape in shapes):
            raise ValueError("shapes and intercept do not belong together")
        return model


_NO_BAND = -1.0  # in place of a margin, in a file


class _Reader:
    """The parts of an array, one after the other."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._at = np.asarray(array), 0

    def next(self, size: int) -> NDArray[Any]:
        """The next ``size`` entries."""
        part = self._array[self._at : self._at + size]
        self._at += size
        if size < 0 or len(part) != size:
            raise ValueError("an array of the model is too short")
        return part

    def end(self) -> None:
        """Refuse what is left."""
        if self._at != len(self._array):
            raise ValueError("an array of the model is too long")


def _joined(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([*(np.asarray(part, dtype=kind) for part in parts), np.empty(0, dtype=kind)])


# -- Shapes as charts: what each bin adds, above how many records it holds, both as released -------------------------


#: What a noise band says, and what it does not.
BANDS = (
    "Noise bands: if only the privacy noise in its sums of residuals were taken away, the same fit to the same rows "
    "would have about 90% of its values in them, on average over rows and columns; in a single column it can be far "
    "less. They do not count the noise in the fit's own settings, nor chance in the sample."
)
_HEIGHT, _WIDTH = 190, 420
_LEVEL = 30  # letters of all categories that fit below a chart side by side


def shape_chart(shapes: Sequence[Shape], outputs: Sequence[str], bands: bool = True) -> Any:
    """One chart of Altair below the other; ``bands`` are those of the noise, where there are any."""
    charts.require()
    import altair

    alt: Any = altair
    return alt.vconcat(*(_layered(alt, shape, outputs, bands).properties(width=_WIDTH) for shape in shapes))


def shape_spec(shape: Shape, outputs: Sequence[str]) -> charts.Spec:
    """The chart of one shape, for a page."""
    charts.require()
    import altair

    return dict(_layered(altair, shape, outputs, True).to_dict())


def _layered(alt: Any, shape: Shape, outputs: Sequence[str], bands: bool) -> Any:
    """Steps or points of the values, on their noise band, in front of gray bars of the counts."""
    table = shape.to_dict(outputs)
    names = [name for name in table if name.startswith("value")]
    lower = table.get("lower", [])
    ranged = shape.column.ordered and all(
        math.isfinite(end) for end in (*lower[: shape.bins.n_bins], table["upper"][shape.bins.n_bins - 1])
    )
    bins = shape.bins.n_bins if ranged else len(table["bin"])
    places = [
        (lower[place], table["upper"][place]) if ranged else (table["bin"][place], "")
        for place in range(bins)
    ]
    counts = [
        {"from": low, "to": high, "rows": max(0.0, count)}
        for (low, high), count in zip(places, table["count"], strict=False)
    ]
    values = [
        {"from": low, "value": table[name][place], "output": name.removeprefix("value").strip() or "all"}
        for name in names
        for place, (low, _) in enumerate(places)
    ]
    banded = bands and shape.margin is not None
    for one, low, high in zip(values, table["low"], table["high"], strict=False) if banded else ():
        one |= {"low": low, "high": high}
    if ranged:  # the last step needs an end
        values += [{**one, "from": places[-1][1]} for one in values if one["from"] == places[-1][0]]
    kind, axis = ("Q", {"scale": alt.Scale(zero=False, nice=False)}) if ranged else ("N", {"sort": None})
    if not ranged and sum(len(str(low)) for low, _ in places) <= _LEVEL:
        axis["axis"] = alt.Axis(labelAngle=0)
    x = alt.X(f"from:{kind}", title=shape.name, **axis)
    color = alt.Color("output:N", title=None) if len(names) > 1 else alt.value(charts.COLORS[0])
    rows = alt.Y("rows:Q", title="rows (noisy)", axis=alt.Axis(grid=False, orient="right"))
    gray = alt.Chart(alt.Data(values=counts))
    gray = gray.mark_rect(color="#80808059") if ranged else gray.mark_bar(color="#80808059")
    gray = gray.encode(x=x, y=rows, **({"x2": "to", "y2": alt.datum(0)} if ranged else {}))
    front = alt.Chart(alt.Data(values=values))
    front = (
        front.mark_line(interpolate="step-after", strokeWidth=3)
        if ranged
        else front.mark_point(filled=True, size=90, opacity=1)
    )
    adds, low = (
        alt.Y(
            f"{name}:Q",
            title="adds to the prediction",
            axis=alt.Axis(orient="left"),
            scale=alt.Scale(padding=8),
        )
        for name in ("value", "low")
    )
    front = front.encode(x=x, y=adds, color=color)
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(strokeDash=[4, 3], color="#808080")
    front = alt.layer(
        zero.encode(y=alt.datum(0, title="adds to the prediction")),
        *([_band(alt, values, x, low, ranged)] if banded else []),
        front,
    )
    return alt.layer(gray, front).resolve_scale(y="independent").properties(height=_HEIGHT)


def _band(alt: Any, values: Sequence[dict[str, Any]], x: Any, low: Any, ranged: bool) -> Any:
    """A shaded step around a line, or a bar through every point."""
    chart, color = alt.Chart(alt.Data(values=values)), charts.COLORS[0]
    chart = (
        chart.mark_area(interpolate="step-after", color=color, opacity=0.25)
        if ranged
        else chart.mark_rule(color=color, strokeWidth=7, opacity=0.3)
    )
    return chart.encode(x=x, y=low, y2="high:Q")
