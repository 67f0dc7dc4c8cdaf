"""Public domains of columns: what a cell may be, and the fixed numbers it becomes.

Each domain turns a column of cells into a block of numbers in [-1, 1] whose Euclidean norm per row is at most
1. What becomes of a cell depends on that cell and on the public domain alone, never on other rows, so that a
change of one person's row changes one row of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.tables import cell_text

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Label: TypeAlias = str | int | bool

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
TRUE = frozenset({"true", "t", "yes", "y", "1"})
FALSE = frozenset({"false", "f", "no", "n", "0"})
_NUMBER = r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)$"


class SchemaError(ValueError):
    """A schema is malformed, or a table does not fit it; names columns, never quotes a cell."""


@dataclass(frozen=True)
class Numeric:
    """A number in a public interval, scaled linearly to [-1, 1]; values outside are clipped to it.

    A missing cell becomes ``default``, the middle of the interval unless declared otherwise.
    """

    kind: ClassVar[str] = "numeric"
    lower: float
    upper: float
    default: float | None = None

    def __post_init__(self) -> None:
        for name in ("lower", "upper") if self.default is None else ("lower", "upper", "default"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SchemaError(f"a numeric column's {name} must be a finite number, got {value!r}")
            object.__setattr__(self, name, float(value))
        if not self.lower < self.upper:
            raise SchemaError(f"lower must be less than upper, got {self.lower} and {self.upper}")
        if self.default is not None and not self.lower <= self.default <= self.upper:
            raise SchemaError(f"default must be between {self.lower} and {self.upper}, got {self.default}")

    def feature_names(self, column: str) -> list[str]:
        """One feature, named like its column."""
        return [column]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """The scaled numbers, one column, and which cells are not numbers at all."""
        values, malformed = _numbers(cells)
        default = self.lower / 2 + self.upper / 2 if self.default is None else self.default
        values = np.clip(np.where(np.isnan(values), default, values), self.lower, self.upper)
        # Halved before subtracting: the width of an interval of huge numbers would overflow.
        middle, half_width = self.lower / 2 + self.upper / 2, self.upper / 2 - self.lower / 2
        return np.clip((values - middle) / half_width, -1.0, 1.0)[:, None], malformed


@dataclass(frozen=True)
class Categorical:
    """One of finitely many public categories, one-hot; a missing or undeclared category becomes all zeros."""

    kind: ClassVar[str] = "categorical"
    categories: tuple[Label, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        _check_labels(self.categories, "categories", at_least=1)

    def feature_names(self, column: str) -> list[str]:
        """One feature per category, named column=category."""
        return [f"{column}={cell_text(category)}" for category in self.categories]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """The one-hot rows; no cell is ever malformed."""
        codes = category_codes(cells, self.categories)
        block = np.zeros((len(codes), len(self.categories)))
        known = np.flatnonzero(codes >= 0)
        block[known, codes[known]] = 1.0
        return block, np.zeros(len(codes), dtype=bool)


@dataclass(frozen=True)
class Boolean:
    """True or false (also written yes/no, 1/0, t/f, y/n), as +1 and -1; a missing cell becomes 0."""

    kind: ClassVar[str] = "boolean"

    def feature_names(self, column: str) -> list[str]:
        """One feature, named like its column."""
        return [column]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """+1, -1 or 0, one column, and which cells are none of true, false and missing."""

        def meaning(text: str) -> float:
            word = text.casefold()
            return 1.0 if word in TRUE else -1.0 if word in FALSE else 0.0 if word in MISSING else math.nan

        values = _mapped(cells, meaning, missing=0.0)
        malformed = np.isnan(values)
        return np.where(malformed, 0.0, values)[:, None], malformed


Domain: TypeAlias = Numeric | Categorical | Boolean
DOMAINS: dict[str, type[Domain]] = {kind.kind: kind for kind in (Numeric, Categorical, Boolean)}


@dataclass(frozen=True)
class Target:
    """The column to predict and its public classes."""

    column: str
    classes: tuple[Label, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        _check_labels(self.classes, "classes", at_least=2)
        if len({type(label) for label in self.classes}) > 1:
            raise SchemaError("classes must be all text, all whole numbers or all true/false, not a mixture")


def category_codes(cells: Any, categories: tuple[Label, ...]) -> NDArray[np.int64]:
    """The position of each cell's category, -1 where it is missing or not declared."""
    position = {cell_text(category): index for index, category in enumerate(categories)}
    codes = _mapped(cells, lambda text: float(position.get(text, -1)), missing=-1.0)
    return codes.astype(np.int64)


def _check_labels(labels: tuple[Label, ...], what: str, at_least: int) -> None:
    if any(not isinstance(label, str | int) for label in labels):
        raise SchemaError(f"{what} must be text, whole numbers or true/false")
    if len(labels) < at_least:
        raise SchemaError(f"{what} must list at least {at_least}, got {len(labels)}")
    if len({cell_text(label) for label in labels}) < len(labels):
        raise SchemaError(f"{what} must differ from each other after surrounding blanks are removed")


def _mapped(cells: Any, meaning: Any, missing: float) -> Array:
    """A function of each cell's text, computed once per distinct cell."""
    encoded = cells.dictionary_encode()
    texts = [cell_text(value) for value in encoded.dictionary.to_pylist()]
    table = np.array([missing if text is None else meaning(text) for text in texts] + [missing])
    return np.asarray(
        table[encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)], dtype=np.float64
    )


def _numbers(cells: Any) -> tuple[Array, Mask]:
    """The cells as numbers, NaN where missing or malformed, and which are malformed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    malformed = np.zeros(len(cells), dtype=bool)
    if kinds.is_string(cells.type) or kinds.is_large_string(cells.type) or kinds.is_string_view(cells.type):
        texts = pc.utf8_trim_whitespace(cells.cast(pa.large_string()))
        absent = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(sorted(MISSING), pa.large_string()))
        numeric = pc.match_substring_regex(texts, _NUMBER)
        malformed = pc.invert(pc.or_(absent, numeric)).fill_null(False).to_numpy(zero_copy_only=False)
        cells = pc.if_else(numeric, texts, pa.scalar(None, pa.large_string()))
    elif not any(
        is_kind(cells.type)
        for is_kind in (
            kinds.is_integer,
            kinds.is_floating,
            kinds.is_boolean,
            kinds.is_decimal,
            kinds.is_null,
        )
    ):
        raise SchemaError(f"holds values of type {cells.type}, not numbers")
    values = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64), malformed
