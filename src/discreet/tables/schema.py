"""A schema: the public domains of a table's columns, and the fixed rows of bounded norm they give."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet._checks import Setting, choice
from discreet._files import write_atomically
from discreet._typing import Array
from discreet.tables.domains import (
    DOMAINS,
    Binned,
    Boolean,
    Categorical,
    Domain,
    Label,
    Numeric,
    SchemaError,
    Target,
    Text,
    category_codes,
    cell_text,
    check_keys,
    domain_from_dict,
    numbers,
    target_from_dict,
)
from discreet.tables.reading import TableError, TableLike, column, id_column, raw_column, require_columns

__all__ = ["Binned", "Boolean", "Categorical", "Numeric", "Schema", "SchemaError", "Target", "Text"]

BadRows = Literal["error", "null"]
FORMATS = ("toml", "json", "yaml")  # of schema files
_SUFFIXES = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}


class RowsOfPeople(np.ndarray[Any, np.dtype[np.float64]]):
    """Rows made by a schema with a group column: a fit that would protect single rows refuses them."""


class NamedRows(np.ndarray[Any, np.dtype[np.float64]]):
    """Rows with the names of their columns. Arrays derived from them, such as some of the columns, have no names."""

    feature_names: tuple[str, ...] = ()


class _NamedRowsOfPeople(NamedRows, RowsOfPeople):
    pass


def named(rows: NDArray[np.float64], names: Sequence[str]) -> NamedRows:
    """Return the rows with the names of their columns; nothing is copied."""
    made: NamedRows = rows.view(_NamedRowsOfPeople if isinstance(rows, RowsOfPeople) else NamedRows)
    made.feature_names = tuple(names)
    return made


@dataclass(frozen=True, eq=False)
class Schema:
    """Public facts about a table: the columns to use, the domain of each, and the column to predict.

    Parameters
    ----------
    columns : mapping from column names to ``Numeric``, ``Binned``, ``Categorical``, ``Boolean`` or ``Text``, in the
        order of the features. Other columns of a table are ignored.
    target : the column to predict with its public classes or bounds, if any.
    group : the column of person ids, if a person can have several rows; see `groups`.
    normalize : whether to scale every nonzero row to Euclidean norm 1.

    Notes
    -----
    Privacy: everything in a schema must be known without looking at the private table: from a code book, a form, the
    law. Bounds or categories read from the private data would be a release that is not accounted for. The transform is
    fixed, works row by row, spends no budget, and reports no counts of missing, clipped or unknown cells.

    Examples
    --------
    >>> schema = Schema(
    ...     {"age": Numeric(0, 100), "ward": Categorical(("north", "south")), "smoker": Boolean()},
    ...     target=Target("readmitted", ("no", "yes")),
    ... )
    >>> schema.feature_names
    ('age', 'ward=north', 'ward=south', 'smoker')
    >>> table = {"age": [75, None, 230], "ward": ["south", "moon", "north"], "smoker": ["yes", "no", None],
    ...          "readmitted": ["no", "yes", "no"]}
    >>> schema.transform(table)
    array([[ 0.5,  0. ,  1. ,  1. ],
           [ 0. ,  0. ,  0. , -1. ],
           [ 1. ,  1. ,  0. ,  0. ]])
    >>> schema.target_codes(table)
    array([0, 1, 0])
    """

    columns: Mapping[str, Domain]
    target: Target | None = None
    group: str | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        if not self.columns:
            raise SchemaError("a schema needs at least one column")
        for name, domain in self.columns.items():
            if not isinstance(name, str) or not isinstance(domain, tuple(DOMAINS.values())):
                raise SchemaError(
                    f"column {name!r} must have a domain, such as Numeric(0, 100), Categorical(['north', 'south']), "
                    f"Boolean(), Binned([18, 65]) or Text(), got {domain!r}"
                )
        if self.target is not None and not isinstance(self.target, Target):
            raise SchemaError(
                f"the target must say what is possible: Target({self.target!r}, classes=[...]) or "
                f"Target({self.target!r}, bounds=(lowest, highest))"
            )
        if self.group is not None and not isinstance(self.group, str):
            raise SchemaError(f"the group must be the name of a column, got {self.group!r}")
        if len(set(self.needed)) < len(self.needed):
            if self.target is not None and self.target.column in self.columns:
                raise SchemaError(
                    f"the target {self.target.column!r} must not be among the columns to learn from"
                )
            raise SchemaError(
                f"the group {self.group!r} holds person ids, and must be neither a feature nor the target"
            )
        if not isinstance(self.normalize, bool):
            raise SchemaError(f"normalize must be true or false, got {self.normalize!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (dict(self.columns), self.target, self.group, self.normalize)

    @property
    def _key(self) -> tuple[Any, ...]:
        return tuple(self.columns.items()), self.target, self.group, self.normalize

    def __str__(self) -> str:
        target = self.target
        facts = {
            "columns": str(len(self.columns)),
            "features": str(self.n_features),
            "longest row": f"{self.row_norm_bound:.6g}",
            "feature_bound": f"{self.feature_bound():.6g} (intercept included)",
            "target": "none"
            if target is None
            else f"{target.column}: {target.bounds or list(target.classes)}",
            "group": self.group or "none: each row is one person",
        }
        lines = [f"{name + ':':<16}{value}" for name, value in facts.items()]
        for name, domain in self.columns.items():
            features = domain.feature_names(name)
            more = f" and {len(features) - 6} more" if len(features) > 6 else ""
            lines.append(f"  {name} ({domain.kind}): {', '.join(features[:6])}{more}")
        return "\n".join(lines)

    # --- what is known before any table is read ---

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of ``transform``'s result."""
        return tuple(
            feature for name, domain in self.columns.items() for feature in domain.feature_names(name)
        )

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The columns of ``transform``'s result that are levels of one category or interval, one group for each.

        One of a group is 1 in every row, so together they repeat the intercept; none where rows are normalized.
        """
        groups, place = [], 0
        for name, domain in self.columns.items():
            width = len(domain.feature_names(name))
            if isinstance(domain, Categorical | Binned) and not self.normalize:
                groups.append(tuple(range(place, place + width)))
            place += width
        return tuple(groups)

    @property
    def n_features(self) -> int:
        """The number of columns of ``transform``'s result."""
        return len(self.feature_names)

    @property
    def row_norm_bound(self) -> float:
        """Bound on the Euclidean norm of a transformed row: each column of the table contributes at most 1."""
        return 1.0 if self.normalize else math.sqrt(len(self.columns))

    def feature_bound(self, *, intercept: bool = True) -> float:
        """Return the estimators' ``feature_bound`` that clips no row, including the intercept's 1."""
        return math.hypot(self.row_norm_bound, intercept)

    @property
    def classes(self) -> NDArray[Any]:
        """The public classes, as an array."""
        target = self._target()
        if target.bounds is not None:
            raise SchemaError(
                f"the target {target.column!r} is a number and has no classes; a regressor predicts it"
            )
        return np.array(target.classes)

    @property
    def target_bounds(self) -> tuple[float, float]:
        """The public bounds of a numeric target, as the regressors' ``target_bounds``."""
        target = self._target()
        if target.bounds is None:
            raise SchemaError(
                f"the target {target.column!r} has classes and no bounds; a classifier predicts it"
            )
        return target.bounds

    @property
    def needed(self) -> list[str]:
        """The columns a table must have for a fit."""
        target = [self.target.column] if self.target else []
        return [*self.columns, *target, *([self.group] if self.group else [])]

    def with_target(
        self, column: str, classes: tuple[Label, ...] = (), *, bounds: tuple[float, float] | None = None
    ) -> Schema:
        """Return a schema with the same columns and another column to predict."""
        return Schema(self.columns, Target(column, classes, bounds), self.group, self.normalize)

    # --- tables ---

    def transform(self, table: TableLike, *, bad_rows: BadRows = "error") -> Array:
        """Return rows of bounded norm: scaled numbers, one-hot categories, booleans as +1 and -1, hashed text.

        Parameters
        ----------
        table : pyarrow Table, pandas or polars DataFrame, or dictionary of columns.
        bad_rows : what to do with a cell that is not valid in its column, such as text among numbers. "error" raises
            and names the column, for the data holder; "null" gives a row of NaN, which an estimator with
            ``bad_rows="null"`` treats as a record that contributes nothing.
        """
        choice("bad_rows", bad_rows, _BAD_ROWS)
        require_columns(table, list(self.columns))
        rows, malformed, place = np.zeros((0, 0)), np.zeros(0, dtype=bool), 0
        for name, domain in self.columns.items():
            try:
                block, bad = domain.encode(column(table, name))
            except SchemaError as error:
                raise SchemaError(f"column {name!r}, declared {domain.kind}, {error}") from None
            if place and len(block) != len(malformed):
                raise TableError(
                    f"column {name!r} has {len(block)} rows, the ones before it {len(malformed)}"
                )
            if bad_rows == "error" and bad.any():
                meaning = _CELLS[domain.kind]
                raise SchemaError(
                    f"column {name!r} is declared {domain.kind}, but has cells that are not {meaning}",
                    "correct them",
                    "leave them empty",
                    Setting("bad_rows", "null", purpose="to ignore such rows"),
                )
            if not place:  # one matrix, filled column by column: blocks beside it would hold everything twice
                rows, malformed = np.empty((len(block), len(self.feature_names))), bad
            malformed = bad | malformed
            rows[:, place : place + block.shape[1]] = block
            place += block.shape[1]
        if self.normalize:
            norms = np.linalg.norm(rows, axis=1)
            rows /= np.where(norms > 0, norms, 1.0)[:, None]
        rows[malformed] = np.nan
        return rows if self.group is None else rows.view(RowsOfPeople)

    def target_codes(self, table: TableLike, *, bad_rows: BadRows = "error") -> NDArray[np.int64]:
        """Return the position of each row's label among the classes; -1 for invalid ones if ``bad_rows="null"``."""
        choice("bad_rows", bad_rows, _BAD_ROWS)
        target = self._target()
        require_columns(table, [target.column])
        codes = category_codes(column(table, target.column), target.classes)
        if bad_rows == "error" and (codes < 0).any():
            allowed = ", ".join(repr(cell_text(label)) for label in target.classes)
            raise SchemaError(
                f"column {target.column!r} has labels that are missing or not declared; allowed: {allowed}",
                "correct them",
                Setting("bad_rows", "null", purpose="to ignore such rows"),
            )
        return codes

    def target_values(self, table: TableLike, *, bad_rows: BadRows = "error") -> NDArray[Any]:
        """Return each row's label, a member of ``classes``, or its number clipped to ``target_bounds``.

        With ``bad_rows="null"`` a missing or invalid number is NaN, and labels are an array of objects with None for
        missing or undeclared ones: an estimator with ``bad_rows="null"`` skips such rows.
        """
        target = self._target()
        if target.bounds is None:
            codes = self.target_codes(table, bad_rows=bad_rows)
            if bad_rows == "error":
                return self.classes[codes]
            return np.array([*target.classes, None], dtype=object)[codes]  # code -1 is the last entry
        choice("bad_rows", bad_rows, _BAD_ROWS)
        require_columns(table, [target.column])
        try:
            values = numbers(column(table, target.column), target.bounds)
        except SchemaError as error:
            raise SchemaError(f"the target {target.column!r} {error}") from None
        if bad_rows == "error" and np.isnan(values).any():
            raise SchemaError(
                f"column {target.column!r} has targets that are missing or not numbers",
                "correct them",
                Setting("bad_rows", "null", purpose="to ignore such rows"),
            )
        return values

    def encode(self, table: TableLike, *, bad_rows: BadRows = "error") -> tuple[Array, NDArray[Any]]:
        """Return the input of a fit: the rows, and their labels as members of ``classes``, or their numbers.

        With ``bad_rows="null"`` a row with an invalid cell or label is all NaN; see `target_values` for its label.
        """
        rows = self.transform(table, bad_rows=bad_rows)
        values = self.target_values(table, bad_rows=bad_rows)
        if len(rows) != len(values):
            raise TableError(f"the target has {len(values)} rows, the other columns {len(rows)}")
        if bad_rows == "null" and self._target().bounds is None:
            rows[[label is None for label in values]] = np.nan
        return rows, values

    def groups(self, table: TableLike) -> NDArray[Any]:
        """Return the person id of each row, for ``fit(groups=...)``: the text of the group column, None without an id.

        Floating-point numbers are not ids: a column of them is refused by its type, a single one among objects is None.
        """
        if self.group is None:
            raise SchemaError("this schema declares no group column; add one, or fit without groups")
        try:
            ids = id_column(raw_column(table, self.group), f"column {self.group!r}")
        except TypeError as error:
            raise SchemaError(str(error)) from None
        return np.array([None if name is None else str(name) for name in ids.to_pylist()], dtype=object)

    def _target(self) -> Target:
        if self.target is None:
            raise SchemaError("this schema declares no target; add one with its column and its classes")
        return self.target

    # --- dictionaries and files ---

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON-ready values."""
        content: dict[str, Any] = {}
        if self.group is not None:
            content["group"] = self.group
        if self.normalize:
            content["normalize"] = True
        if self.target is not None:
            content["target"] = {"column": self.target.column}
            if self.target.bounds is None:
                content["target"]["classes"] = list(self.target.classes)
            else:
                content["target"]["bounds"] = list(self.target.bounds)
        content["columns"] = {name: _domain_to_dict(domain) for name, domain in self.columns.items()}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Rebuild a schema; refuse unknown keys and wrong types."""
        check_keys(content, {"target", "group", "normalize", "columns"}, {"columns"}, "a schema")
        columns, target = content["columns"], content.get("target")
        if not isinstance(columns, Mapping):
            raise SchemaError("'columns' must be a table from column names to domains")
        return cls(
            {name: domain_from_dict(name, fields) for name, fields in columns.items()},
            None if target is None else target_from_dict(target),
            content.get("group"),
            content.get("normalize", False),
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a ``.toml``, ``.json`` or ``.yaml`` file; YAML needs the package PyYAML."""
        path = Path(path)
        kind = _format(path)
        try:
            return cls.from_dict(_parse(path.read_text(encoding="utf-8"), kind))
        except FileNotFoundError:
            raise SchemaError(f"there is no schema file {str(path)!r}") from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"schema file {str(path)!r}: {error}") from error

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.toml``, ``.json`` or ``.yaml`` file."""
        write_atomically(path, self.to_text(_format(Path(path))).encode())

    def to_text(self, kind: str) -> str:
        """Return the content of a schema file, in one of ``FORMATS``."""
        content = self.to_dict()
        if kind == "toml":
            return _toml(content)
        if kind == "yaml":
            return str(_yaml().safe_dump(content, sort_keys=False, allow_unicode=True))
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


_CELLS = {"numeric": "numbers (1.5, not 1,5)", "binned": "numbers", "boolean": "true or false"}
_BAD_ROWS = ("error", "null")


def _domain_to_dict(domain: Domain) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": domain.kind}
    for item in fields(domain):
        value = getattr(domain, item.name)
        if value is not None and value != item.default:
            content[item.name] = list(value) if isinstance(value, tuple) else value
    return content


def _format(path: Path) -> str:
    if path.suffix.lower() not in _SUFFIXES:
        raise SchemaError(f"{str(path)!r}: the name of a schema file must end in .toml, .json or .yaml")
    return _SUFFIXES[path.suffix.lower()]


def _parse(content: str, kind: str) -> Any:
    if kind == "yaml":
        yaml = _yaml()
        try:
            return yaml.safe_load(content)
        except yaml.YAMLError as error:
            raise SchemaError(f"not YAML: {' '.join(str(error).split())}") from None
    return tomllib.loads(content) if kind == "toml" else json.loads(content)


def _yaml() -> Any:
    try:
        return import_module("yaml")
    except ImportError:
        raise SchemaError(
            "YAML files need the package PyYAML; install it, or write the schema as .toml or .json"
        ) from None


def _toml(content: Mapping[str, Any]) -> str:
    """Write the subset of TOML that schemas use; the standard library only reads TOML."""
    plain = {name: value for name, value in content.items() if not isinstance(value, Mapping)}
    lines = [*_toml_lines(plain), ""] if plain else []
    if "target" in content:
        lines += ["[target]", *_toml_lines(content["target"]), ""]
    for name, domain in content["columns"].items():
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
        lines += [f"[columns.{name if bare else _toml_value(name)}]", *_toml_lines(domain), ""]
    return "\n".join(lines)


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml_value(value)}" for key, value in values.items()]


def _toml_value(value: Any) -> str:
    # TOML writes basic strings, numbers, booleans and flat arrays as JSON does, but requires DEL to be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
