"""Public domains of columns: what a cell means, what it may be, and the fixed numbers it becomes.

Each domain turns a column of cells into a block of numbers in [-1, 1] whose Euclidean norm per row is at most 1. The
result for a cell depends on that cell and the public domain alone, never on other rows, so a change of one person's
row changes one row of the result.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from numbers import Complex, Integral, Rational
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet._checks import HintedError
from discreet._typing import Array, Mask

Label: TypeAlias = str | int | bool

TRUE = frozenset({"true", "t", "yes", "y", "1"})
FALSE = frozenset({"false", "f", "no", "n", "0"})
_PLAIN = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"  # numbers as most files write them


MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_TRUTH = {"true": 1.0, "false": 0.0}
_NUMBER = re.compile(
    r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)"
)


class SchemaError(HintedError, ValueError):
    """A schema is malformed, or a table does not fit it. The message names columns and never quotes a cell."""


class Declared:
    """Answer unknown parameters of what a schema declares by an ``example`` of how it is written."""

    example: ClassVar[str]

    def __new__(cls, *values: Any, **given: Any) -> Self:
        signature = inspect.signature(cls)
        for name in given:
            if name not in signature.parameters:
                known = ", ".join(signature.parameters) or "none"
                raise TypeError(
                    f"{cls.__name__} has no parameter {name!r}; write {cls.example}, there are {known}"
                )
        if values or given:  # copies are made without any
            try:
                signature.bind(*values, **given)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}: {error}; write {cls.example}") from None
        return super().__new__(cls)


@dataclass(frozen=True)
class Numeric(Declared):
    """A number in a public interval, scaled linearly to [-1, 1]; values outside are clipped to it.

    A missing cell becomes ``default``, by default the middle of the interval. With ``missing_feature``, a second
    feature is 1 for missing cells, where the number is 0. With ``logarithmic``, log(1 + value - lower) is scaled
    linearly, for amounts that are mostly small.

    Parameters
    ----------
    lower, upper : float
        The public interval.
    default : float, default None
        Value used for a missing cell; None is the middle.
    missing_feature : bool, default False
        Whether a second feature marks missing cells.
    logarithmic : bool, default False
        Whether the logarithm is scaled.

    Notes
    -----
    Privacy: declare the interval without looking at private rows, or pay for it by `private_domains`. A cell's
    features depend on that cell alone.

    Examples
    --------
    >>> Numeric(18, 100, missing_feature=True).feature_names("age")
    ['age', 'age missing']
    """

    kind: ClassVar[str] = "numeric"
    example: ClassVar[str] = "Numeric(0, 100)"
    lower: float
    upper: float
    default: float | None = None
    missing_feature: bool = False
    logarithmic: bool = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper") if self.default is None else ("lower", "upper", "default"):
            object.__setattr__(self, name, _finite(f"a numeric column's {name}", getattr(self, name)))
        for name in ("missing_feature", "logarithmic"):
            if not isinstance(getattr(self, name), bool):
                raise SchemaError(f"a numeric column's {name} must be true or false")
        if not self.lower < self.upper:
            raise SchemaError(f"lower must be less than upper, got {self.lower} and {self.upper}")
        if self.default is not None and not self.lower <= self.default <= self.upper:
            raise SchemaError(f"default must be between {self.lower} and {self.upper}, got {self.default}")

    @property
    def middle(self) -> float:
        """The middle of the interval; halves of huge bounds do not overflow."""
        return self.lower / 2 + self.upper / 2

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return self.upper / 2 - self.lower / 2

    def feature_names(self, column: str) -> list[str]:
        """Return one feature, named like its column, and one for missing cells if requested."""
        return [column, f"{column} missing"] if self.missing_feature else [column]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """Return the scaled numbers, and which cells are not numbers."""
        values, malformed = read_numbers(cells)
        missing = np.isnan(values)
        scaled = self.scaled(np.where(missing, self.middle if self.default is None else self.default, values))
        if not self.missing_feature:
            return scaled[:, None], malformed
        return np.column_stack([np.where(missing, 0.0, scaled), missing.astype(np.float64)]), malformed

    def scaled(self, values: Array) -> Array:
        """Clip numbers to the interval and scale them: its ends become -1 and 1."""
        values = np.clip(values, self.lower, self.upper)
        if self.logarithmic:
            inside = np.log1p(2 * (values / 2 - self.lower / 2))
            scaled = 2 * inside / math.log1p(2 * self.half_width) - 1
        else:
            scaled = (values - self.middle) / self.half_width
        return np.asarray(np.clip(scaled, -1.0, 1.0))


@dataclass(frozen=True)
class Binned(Declared):
    """The interval that contains a number, one-hot; ``edges`` are public and the outer intervals unbounded.

    A value equal to an edge belongs to the interval above it; a missing cell becomes all zeros.

    Parameters
    ----------
    edges : sequence of float
        Increasing; k edges make k + 1 intervals.

    Notes
    -----
    Privacy: declare the edges without looking at private rows. A cell's features depend on that cell alone.

    Examples
    --------
    >>> Binned((18, 65)).feature_names("age")
    ['age<18', '18<=age<65', 'age>=65']
    """

    kind: ClassVar[str] = "binned"
    example: ClassVar[str] = "Binned([0, 18, 65, 120])"
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = tuple(_finite("every edge", edge) for edge in _listed("edges", self.edges))
        if not edges or any(low >= high for low, high in itertools.pairwise(edges)):
            raise SchemaError(f"edges must be numbers in increasing order, at least one, got {list(edges)}")
        object.__setattr__(self, "edges", edges)

    def feature_names(self, column: str) -> list[str]:
        """Return one feature per interval."""
        middle = [f"{low:g}<={column}<{high:g}" for low, high in itertools.pairwise(self.edges)]
        return [f"{column}<{self.edges[0]:g}", *middle, f"{column}>={self.edges[-1]:g}"]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """Return the one-hot rows, and which cells are not numbers."""
        values, malformed = read_numbers(cells)
        present = ~np.isnan(values)
        codes = np.where(present, np.searchsorted(self.edges, values, side="right"), -1)
        return _one_hot(codes, len(self.edges) + 1), malformed


@dataclass(frozen=True)
class Categorical(Declared):
    """One of finitely many public categories, one-hot; a missing cell becomes all zeros.

    So does an undeclared category, unless ``unknown`` is "bucket": then all undeclared ones share an extra feature.

    Parameters
    ----------
    categories : sequence of labels
        All that are possible; the first is the reference on model cards.
    unknown : {"ignore", "bucket"}
        What becomes of other cells.

    Notes
    -----
    Privacy: declare the categories without looking at private rows. A cell's features depend on that cell alone.

    Examples
    --------
    >>> Categorical(("north", "south"), unknown="bucket").feature_names("ward")
    ['ward=north', 'ward=south', 'ward=*']
    """

    kind: ClassVar[str] = "categorical"
    example: ClassVar[str] = "Categorical(['no', 'yes'])"
    categories: tuple[Label, ...]
    unknown: Literal["ignore", "bucket"] = "ignore"

    def __post_init__(self) -> None:
        if self.unknown not in ("ignore", "bucket"):
            raise SchemaError(f"unknown must be 'ignore' or 'bucket', got {self.unknown!r}")
        object.__setattr__(self, "categories", _listed("categories", self.categories))
        _check_labels(self.categories, "categories", at_least=1)

    def feature_names(self, column: str) -> list[str]:
        """Return one feature per category, named column=category, and one for all others if ``unknown`` is "bucket"."""
        names = [f"{column}={cell_text(category)}" for category in self.categories]
        return [*names, f"{column}=*"] if self.unknown == "bucket" else names

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """Return the one-hot rows; no cell is malformed."""
        codes = category_codes(cells, self.categories, undeclared=len(self.categories))
        bucket = int(self.unknown == "bucket")
        block = _one_hot(codes, len(self.categories) + 1)[:, : len(self.categories) + bucket]
        return block, np.zeros(len(codes), dtype=bool)


@dataclass(frozen=True)
class Boolean(Declared):
    """True or false (also written yes/no, 1/0, t/f, y/n), as +1 and -1; a missing cell becomes 0.

    Notes
    -----
    Privacy: a cell's feature depends on that cell alone.

    Examples
    --------
    >>> Boolean().feature_names("smoker")
    ['smoker']
    """

    kind: ClassVar[str] = "boolean"
    example: ClassVar[str] = "Boolean()"

    def feature_names(self, column: str) -> list[str]:
        """Return one feature, named like its column."""
        return [column]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """Return +1, -1 or 0, one column, and which cells are none of true, false and missing."""

        def meaning(text: str) -> float:
            word, number = text.casefold(), text_number(text)
            if word in MISSING_WORDS:
                return 0.0
            return 1.0 if word in TRUE or number == 1 else -1.0 if word in FALSE or number == 0 else math.nan

        values = _mapped(cells, meaning, missing=0.0)
        malformed = np.isnan(values)
        return np.where(malformed, 0.0, values)[:, None], malformed


@dataclass(frozen=True)
class Text(Declared):
    """Open text: words are hashed to ``n_features`` signed counts, scaled to Euclidean norm 1.

    The hash is fixed and public, so no vocabulary is read from the data. Two words may share a feature; more features
    make that rarer. A missing cell, or one without words, becomes all zeros. With ``square_roots``, counts are replaced
    by their signed square roots before scaling: a word used ten times then does not dominate the others, which improves
    private text models (benchmarks/results/text.md).

    Parameters
    ----------
    n_features : int, default 256
        How many features words are hashed to.
    square_roots : bool, default False
        Whether counts are replaced by their signed square roots.

    Notes
    -----
    Privacy: a cell's features depend on that cell and the public hash alone.

    Examples
    --------
    >>> Text(2).feature_names("letter")
    ['letter#0', 'letter#1']
    """

    kind: ClassVar[str] = "text"
    example: ClassVar[str] = "Text(256)"
    n_features: int = 256
    square_roots: bool = False

    def __post_init__(self) -> None:
        n = self.n_features
        if not isinstance(self.square_roots, bool):
            raise SchemaError("a text column's square_roots must be true or false")
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST_HASHES:
            raise SchemaError(
                f"a text column's n_features must be a whole number from 1 to {_MOST_HASHES}, got {n!r}"
            )

    def feature_names(self, column: str) -> list[str]:
        """Return numbered features."""
        return [f"{column}#{index}" for index in range(self.n_features)]

    def encode(self, cells: Any) -> tuple[Array, Mask]:
        """Return the scaled counts; no cell is malformed."""
        texts, rows_of = distinct_texts(cells)
        places: dict[str, tuple[int, float]] = {}
        table = np.zeros((len(texts) + 1, self.n_features))
        for row, text in zip(table, texts, strict=False):
            for word in re.findall(r"\w+", (text or "").casefold()):
                if word not in places:
                    digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
                    places[word] = digest // 2 % self.n_features, 1.0 if digest % 2 else -1.0
                place, sign = places[word]
                row[place] += sign
        if self.square_roots:
            table = np.copysign(np.sqrt(np.abs(table)), table)
        norms = np.linalg.norm(table, axis=1)
        table /= np.where(norms > 0, norms, 1.0)[:, None]
        block = table[rows_of]
        return block, np.zeros(len(block), dtype=bool)


_MOST_HASHES = 2**14

Domain: TypeAlias = Numeric | Binned | Categorical | Boolean | Text
DOMAINS: dict[str, type[Domain]] = {kind.kind: kind for kind in (Numeric, Binned, Categorical, Boolean, Text)}


@dataclass(frozen=True)
class Target(Declared):
    """The column to predict, with its public classes, or the bounds of a number.

    Parameters
    ----------
    column : str
        The name of the column.
    classes : sequence of labels
        All that are possible, for a classifier.
    bounds : (float, float), default None
        The lowest and highest number that are possible, for a regressor.

    Notes
    -----
    Privacy: declare classes and bounds without looking at private rows.

    Examples
    --------
    >>> Target("readmitted", ("no", "yes")).classes
    ('no', 'yes')
    """

    example: ClassVar[str] = "Target('ill', classes=['no', 'yes']) or Target('costs', bounds=(0, 1e5))"
    column: str
    classes: tuple[Label, ...] = ()
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _listed("classes", self.classes))
        if self.bounds is not None:
            if self.classes:
                raise SchemaError("a target has classes, or bounds if it is a number, not both")
            bounds = tuple(_finite("every bound of the target", bound) for bound in self.bounds)
            if len(bounds) != 2 or not bounds[0] < bounds[1]:
                raise SchemaError(f"the target's bounds must be [lowest, highest], got {list(bounds)}")
            object.__setattr__(self, "bounds", bounds)
            return
        if not self.classes:
            raise SchemaError("a target needs its public classes, or bounds if it is a number")
        _check_labels(self.classes, "classes", at_least=2)
        if len({type(label) for label in self.classes}) > 1:
            raise SchemaError("classes must be all text, all whole numbers or all true/false, not a mixture")
        if any(isinstance(label, int) and not -(2**63) <= label < 2**63 for label in self.classes):
            raise SchemaError(
                "classes that are whole numbers must lie between -2**63 and 2**63 - 1; write them as text"
            )


def check_keys(content: Any, allowed: set[str], required: set[str], what: str) -> None:
    """Raise unless ``content`` is a table with the required names and no unknown ones."""
    if not isinstance(content, Mapping):
        raise SchemaError(f"{what} must be a table of names and values")
    unknown, missing = set(content) - allowed, required - set(content)
    for problem, keys in (("unknown", unknown), ("missing", missing)):
        if keys:
            names, known = ", ".join(sorted(map(repr, keys))), ", ".join(sorted(allowed))
            raise SchemaError(f"{what} has {problem} entries {names}; known: {known}")


def domain_from_dict(name: str, content: Any) -> Domain:
    """Rebuild the domain of a column; refuse unknown keys and wrong types."""
    named = content.get("kind") if isinstance(content, Mapping) else None
    if not isinstance(named, str) or named not in DOMAINS:
        raise SchemaError(f"column {name!r} must have a kind, one of: {', '.join(DOMAINS)}")
    values = dict(content)
    kind = DOMAINS[values.pop("kind")]
    required = {item.name for item in fields(kind) if item.default is MISSING}
    check_keys(values, {item.name for item in fields(kind)}, required, f"column {name!r}")
    try:
        return kind(**values)
    except (SchemaError, TypeError) as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def target_from_dict(content: Any) -> Target:
    """Rebuild a target; refuse unknown keys and wrong types."""
    check_keys(content, {"column", "classes", "bounds"}, {"column"}, "the target")
    facts = {name: content[name] for name in ("classes", "bounds") if name in content}
    if not isinstance(content["column"], str) or not all(isinstance(v, list | tuple) for v in facts.values()):
        raise SchemaError("the target must have the name of a column, and a list of classes or of two bounds")
    return Target(content["column"], **{name: tuple(values) for name, values in facts.items()})


def category_codes(cells: Any, categories: Sequence[Any], undeclared: int = -1) -> NDArray[np.int64]:
    """Return the position of each cell's category; -1 if missing, ``undeclared`` if not among them.

    A cell belongs to the category with the same text. If there is none, it belongs to the only category that is the
    same number: 1.0, True and "1.0" are the category 1, and the whole number 7 is "07".
    """
    by_text = {cell_text(category): place for place, category in enumerate(categories)}
    by_number: dict[float, int] = {}
    for text, place in by_text.items():
        if text is not None and math.isfinite(number := text_number(text)):
            by_number[number] = undeclared if number in by_number else place

    def code(text: str) -> float:
        other = -1 if text.casefold() in MISSING_WORDS else undeclared
        return float(by_text.get(text, by_number.get(text_number(text), other)))

    return _mapped(cells, code, missing=-1.0).astype(np.int64)


def numbers(cells: Any, bounds: tuple[float, float]) -> Array:
    """Return the cells as numbers clipped to ``bounds``; NaN if missing or not a number."""
    return np.clip(read_numbers(cells)[0], *bounds)


def _one_hot(codes: NDArray[np.int64], width: int) -> Array:
    """Put a 1 at each row's code; all zeros if the code is -1."""
    block = np.zeros((len(codes), width))
    known = np.flatnonzero(codes >= 0)
    block[known, codes[known]] = 1.0
    return block


def _listed(what: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str):
        raise SchemaError(f"{what} must be a list")
    return tuple(values)


def _finite(what: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(cell_number(value)):
        raise SchemaError(f"{what} must be a finite number, got {value!r}")
    return float(value)


def _check_labels(labels: tuple[Label, ...], what: str, at_least: int) -> None:
    if any(not isinstance(label, str | int) for label in labels):
        raise SchemaError(f"{what} must be text, whole numbers or true/false")
    if len(labels) < at_least:
        raise SchemaError(f"{what} must list at least {at_least}, got {len(labels)}")
    if len({cell_text(label) for label in labels}) < len(labels):
        raise SchemaError(f"{what} must differ from each other after surrounding blanks are removed")


def distinct_texts(cells: Any) -> tuple[list[str | None], NDArray[np.int64]]:
    """Return the distinct texts of the cells, and the position of every row's; missing ones come last, as None."""
    encoded = cells.dictionary_encode()
    try:
        values = encoded.dictionary.to_pylist()
    except (OverflowError, ValueError):
        values = [_python(value) for value in encoded.dictionary]
    texts = [cell_text(value) for value in values]
    places = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return [*texts, None], np.asarray(places, dtype=np.int64)


def _python(value: Any) -> object:
    """Convert an Arrow scalar to Python; the name of its type for a date outside Python's range."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return f"<{value.type}>"


def _mapped(cells: Any, meaning: Callable[[str], float], missing: float) -> Array:
    """Apply a function to each cell's text, once per distinct cell."""
    texts, places = distinct_texts(cells)
    table = np.array([missing if text is None else meaning(text) for text in texts])
    return np.asarray(table[places], dtype=np.float64)


def read_numbers(cells: Any) -> tuple[Array, Mask]:
    """Return the cells as numbers, NaN if missing or malformed, and which are malformed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    malformed = np.zeros(len(cells), dtype=bool)
    if any(kind(cells.type) for kind in (kinds.is_integer, kinds.is_floating, kinds.is_boolean)):
        return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), malformed
    is_text = kinds.is_string(cells.type) or kinds.is_large_string(cells.type)
    if not (is_text or kinds.is_decimal(cells.type) or kinds.is_null(cells.type)):
        raise SchemaError(f"holds values of type {cells.type}, not numbers")
    values = np.full(len(cells), np.nan)
    others = np.ones(len(cells), dtype=bool)
    if is_text:  # Arrow reads these numbers as `text_number` does, and much faster
        plain = pc.fill_null(pc.match_substring_regex(cells, _PLAIN), False)
        others = ~plain.to_numpy(zero_copy_only=False)
        values[~others] = cells.filter(plain).cast(pa.float64()).to_numpy()
    texts, places = distinct_texts(cells.filter(pa.array(others)))
    numbers = np.array([math.nan if text is None else text_number(text) for text in texts])
    words = np.array([text is not None and text.casefold() not in MISSING_WORDS for text in texts])
    values[others] = numbers[places]
    malformed[others] = (words & np.isnan(numbers))[places]
    return values, malformed


# -- the meaning of one cell: its text and its number ------------------------------------------------------------
#
# A cell means the same in every container. 1, 1.0, True, ``Decimal(1)``, "1", "1.0" and "true" are one number, from a
# file, a typed column or a list of objects, so that no row changes how others are read.


def cell_text(cell: object) -> str | None:
    """Return the text of a cell; None if it is missing.

    >>> cell_text(" north "), cell_text(3), cell_text(3.0), cell_text(True), cell_text(float("nan"))
    ('north', '3', '3', 'true', None)
    """
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):  # of pandas, which may not be installed
        return None
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return None if np.isnat(cell) else str(_python_time(cell))
    if isinstance(cell, np.generic) or (isinstance(cell, np.ndarray) and cell.ndim == 0):
        cell = cell.item()
    if isinstance(cell, bool):
        return str(cell).lower()
    try:
        if isinstance(cell, float):
            return _float_text(cell)
        if isinstance(cell, Complex) and not isinstance(cell, Rational | np.generic) and cell.imag == 0:
            return cell_text(cell.real)
        if isinstance(cell, Rational) and not isinstance(cell, Integral):
            return _float_text(float(cell))
        if isinstance(cell, Decimal):  # 1.50 is 1.5, because the type of a column sets the number of digits
            return re.sub(r"(\.[0-9]*?)0+$", r"\1", str(cell)).removesuffix(".")
        return str(cell)
    except Exception:  # whatever an object's own method raises
        if isinstance(cell, int):  # with thousands of digits, which Python does not print
            return "inf" if cell > 0 else "-inf"
        return f"<{type(cell).__name__}>"


def _float_text(number: float) -> str | None:
    if math.isnan(number):
        return None
    # pandas turns a column of whole numbers with a missing cell into floating point: 3.0 must still be "3".
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _python_time(cell: Any) -> object:
    """Convert a date, time or duration to Python's own type, as Arrow does for a typed column."""
    value = cell.item()
    if isinstance(value, int):  # of nanoseconds
        value = cell.astype(f"{cell.dtype.kind}8[us]").item()
    return f"<{cell.dtype}>" if isinstance(value, int) else value  # outside Python's range of years


def text_number(text: str) -> float:
    """Return the number that a text without surrounding blanks represents; NaN if none.

    >>> [text_number(text) for text in ("1", "1.50", "-1e400", "True", "1_000", "many")]
    [1.0, 1.5, -inf, 1.0, nan, nan]
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    return _TRUTH.get(text.casefold(), math.nan)


def cell_number(cell: object) -> float:
    """Return the number that a cell represents; NaN if it is missing or not a number.

    >>> [cell_number(cell) for cell in (True, "true", Decimal("1.00"), " 1.0 ", 10**400, None, "many")]
    [1.0, 1.0, 1.0, 1.0, inf, nan, nan]
    """
    if isinstance(cell, float | int):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
    text = cell_text(cell)
    return math.nan if text is None else text_number(text)
