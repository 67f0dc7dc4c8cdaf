"""A schema: the public domains of a table's columns, and the fixed rows of bounded norm they give."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet._files import write_atomically
from discreet.domains import (
    DOMAINS,
    Array,
    Boolean,
    Categorical,
    Domain,
    Label,
    Numeric,
    SchemaError,
    Target,
    category_codes,
)
from discreet.tables import TableError, TableLike, cell_text, column, require_columns

__all__ = ["Boolean", "Categorical", "Numeric", "Schema", "SchemaError", "Target"]

BadRows = Literal["error", "null"]


@dataclass(frozen=True, eq=False)
class Schema:
    """Public facts about a table: which columns to use, the domain of each, and the column to predict.

    Parameters
    ----------
    columns : mapping from column names to ``Numeric``, ``Categorical`` or ``Boolean``, in the order of the
        features. Columns of a table that are not named here are ignored.
    target : the column to predict with its public classes, if there is one.

    Privacy
    -------
    Everything in a schema must be known without looking at the private table: from a code book, a form, the
    law. Bounds or categories read off the private data would be a release nobody paid for. The transform is
    fixed, works row by row, spends no budget, and counts nothing: not what was missing, clipped or unknown.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        if not self.columns:
            raise SchemaError("a schema needs at least one column")
        for name, domain in self.columns.items():
            if not isinstance(name, str) or not isinstance(domain, tuple(DOMAINS.values())):
                raise SchemaError(f"column {name!r} must have a domain, one of: {', '.join(DOMAINS)}")
        if self.target is not None and self.target.column in self.columns:
            raise SchemaError(
                f"the target {self.target.column!r} must not be among the columns to learn from"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (dict(self.columns), self.target)

    @property
    def _key(self) -> tuple[Any, ...]:
        return tuple(self.columns.items()), self.target

    # --- what is known before any table is read ---

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of ``transform``'s result."""
        return tuple(
            feature for name, domain in self.columns.items() for feature in domain.feature_names(name)
        )

    @property
    def n_features(self) -> int:
        """The number of columns of ``transform``'s result."""
        return len(self.feature_names)

    @property
    def row_norm_bound(self) -> float:
        """No transformed row has a larger Euclidean norm: each column of the table contributes at most 1."""
        return math.sqrt(len(self.columns))

    def feature_bound(self, *, intercept: bool = True) -> float:
        """The estimators' ``feature_bound`` that shrinks no row, the intercept's 1 included."""
        return math.sqrt(len(self.columns) + intercept)

    @property
    def classes(self) -> NDArray[Any]:
        """The public classes, as an array."""
        return np.array(self._target().classes)

    @property
    def needed(self) -> list[str]:
        """The columns a table must have to be learned from."""
        return [*self.columns, *([self.target.column] if self.target else [])]

    def with_target(self, column: str, classes: tuple[Label, ...]) -> Schema:
        """The same columns with another column to predict."""
        return Schema(self.columns, Target(column, classes))

    # --- tables ---

    def transform(self, table: TableLike, *, bad_rows: BadRows = "error") -> Array:
        """Rows of bounded norm: numbers scaled to [-1, 1], categories one-hot, booleans as +1 and -1.

        Parameters
        ----------
        table : pyarrow Table, pandas DataFrame, or dictionary of columns.
        bad_rows : what to do with a cell that has no meaning in its column, such as text among numbers.
            "error" tells the holder of the data which column it is; "null" gives a row of NaN, which an
            estimator with ``bad_rows="null"`` treats as a record that contributes nothing.
        """
        _check_bad_rows(bad_rows)
        require_columns(table, list(self.columns))
        blocks: list[Array] = []
        malformed = np.zeros(0, dtype=bool)
        for name, domain in self.columns.items():
            try:
                block, bad = domain.encode(column(table, name))
            except SchemaError as error:
                raise SchemaError(f"column {name!r}, declared {domain.kind}, {error}") from None
            if blocks and len(block) != len(malformed):
                raise TableError(
                    f"column {name!r} has {len(block)} rows, the ones before it {len(malformed)}"
                )
            if bad_rows == "error" and bad.any():
                meaning = _CELLS[domain.kind]
                raise SchemaError(
                    f"column {name!r} is declared {domain.kind}, but has cells that are not {meaning}; "
                    "correct them, leave them empty, or ask for bad_rows='null' to ignore such rows"
                )
            malformed = bad | malformed if blocks else bad
            blocks.append(block)
        rows: Array = np.concatenate(blocks, axis=1)
        rows[malformed] = np.nan
        return rows

    def target_codes(self, table: TableLike, *, bad_rows: BadRows = "error") -> NDArray[np.int64]:
        """The position of each row's label among the classes; -1 where it is none, if ``bad_rows="null"``."""
        _check_bad_rows(bad_rows)
        target = self._target()
        require_columns(table, [target.column])
        codes = category_codes(column(table, target.column), target.classes)
        if bad_rows == "error" and (codes < 0).any():
            allowed = ", ".join(repr(cell_text(label)) for label in target.classes)
            raise SchemaError(
                f"column {target.column!r} has labels that are missing or not declared; allowed: {allowed}; "
                "correct them or ask for bad_rows='null' to ignore such rows"
            )
        return codes

    def encode(self, table: TableLike, *, bad_rows: BadRows = "error") -> tuple[Array, NDArray[Any]]:
        """What a fit needs: the rows, and their labels as members of ``classes``.

        With ``bad_rows="null"`` a row with a meaningless cell or label is all NaN.
        """
        rows, codes = self.transform(table, bad_rows=bad_rows), self.target_codes(table, bad_rows=bad_rows)
        if len(rows) != len(codes):
            raise TableError(f"the target has {len(codes)} rows, the other columns {len(rows)}")
        rows[codes < 0] = np.nan
        return rows, self.classes[np.maximum(codes, 0)]

    def _target(self) -> Target:
        if self.target is None:
            raise SchemaError("this schema declares no target; add one with its column and its classes")
        return self.target

    # --- dictionaries and files ---

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain JSON-ready values."""
        content: dict[str, Any] = {}
        if self.target is not None:
            content["target"] = {"column": self.target.column, "classes": list(self.target.classes)}
        content["columns"] = {name: _domain_to_dict(domain) for name, domain in self.columns.items()}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Rebuild a schema; unknown keys and wrong types are refused."""
        _check_keys(content, {"target", "columns"}, {"columns"}, "a schema")
        columns, target = content["columns"], content.get("target")
        if not isinstance(columns, Mapping):
            raise SchemaError("'columns' must be a table from column names to domains")
        if target is not None:
            _check_keys(target, {"column", "classes"}, {"column", "classes"}, "the target")
            if not isinstance(target["column"], str) or not isinstance(target["classes"], list | tuple):
                raise SchemaError("the target must have the name of a column and a list of classes")
            target = Target(target["column"], tuple(target["classes"]))
        return cls({name: _domain_from_dict(name, fields) for name, fields in columns.items()}, target)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a ``.toml`` or ``.json`` file."""
        path = Path(path)
        parsers = {".toml": tomllib.loads, ".json": json.loads}
        if path.suffix.lower() not in parsers:
            raise SchemaError(f"{str(path)!r}: the name of a schema file must end in .toml or .json")
        try:
            content = parsers[path.suffix.lower()](path.read_text(encoding="utf-8"))
            return cls.from_dict(content)
        except FileNotFoundError:
            raise SchemaError(f"there is no schema file {str(path)!r}") from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"schema file {str(path)!r}: {error}") from error

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.toml`` or ``.json`` file."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".toml", ".json"):
            raise SchemaError(f"{str(path)!r}: the name of a schema file must end in .toml or .json")
        content = self.to_dict()
        text = (
            _toml(content) if suffix == ".toml" else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        )
        write_atomically(path, text.encode())


_CELLS = {"numeric": "numbers", "boolean": "true or false", "categorical": "categories"}


def _check_bad_rows(bad_rows: str) -> None:
    if bad_rows not in ("error", "null"):
        raise ValueError(f"bad_rows must be 'error' or 'null', got {bad_rows!r}")


def _check_keys(content: Any, allowed: set[str], required: set[str], what: str) -> None:
    if not isinstance(content, Mapping):
        raise SchemaError(f"{what} must be a table of names and values")
    unknown, missing = set(content) - allowed, required - set(content)
    for problem, keys in (("unknown", unknown), ("missing", missing)):
        if keys:
            names, known = ", ".join(sorted(map(repr, keys))), ", ".join(sorted(allowed))
            raise SchemaError(f"{what} has {problem} entries {names}; known: {known}")


def _domain_to_dict(domain: Domain) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": domain.kind}
    for item in fields(domain):
        value = getattr(domain, item.name)
        if value is not None:
            content[item.name] = list(value) if isinstance(value, tuple) else value
    return content


def _domain_from_dict(name: str, content: Any) -> Domain:
    if not isinstance(content, Mapping) or content.get("kind") not in DOMAINS:
        raise SchemaError(f"column {name!r} must have a kind, one of: {', '.join(DOMAINS)}")
    values = dict(content)
    kind = DOMAINS[values.pop("kind")]
    known = {item.name for item in fields(kind)}
    _check_keys(values, known, known - {"default"}, f"column {name!r}")
    if isinstance(values.get("categories"), str):
        raise SchemaError(f"column {name!r}: categories must be a list")
    try:
        return kind(**values)
    except (SchemaError, TypeError) as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def _toml(content: Mapping[str, Any]) -> str:
    """The schema's own subset of TOML; the standard library only reads it."""
    lines = []
    if "target" in content:
        lines += [
            "[target]",
            *(f"{key} = {_toml_value(value)}" for key, value in content["target"].items()),
            "",
        ]
    for name, domain in content["columns"].items():
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
        lines += [f"[columns.{name if bare else _toml_value(name)}]"]
        lines += [*(f"{key} = {_toml_value(value)}" for key, value in domain.items()), ""]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    # TOML spells basic strings, numbers, booleans and flat arrays as JSON does, but wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
