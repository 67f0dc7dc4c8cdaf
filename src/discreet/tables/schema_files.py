"""Schemas as text: TOML, JSON and, if PyYAML is installed, YAML."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from discreet._files import write_atomically
from discreet.tables.domains import SchemaError

Made = TypeVar("Made")

FORMATS = ("toml", "json", "yaml")
_SUFFIXES = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read(path: str | os.PathLike[str], make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Return ``make`` of a file's content; every error names the file."""
    path = Path(path)
    kind = _format(path)
    try:
        return make(_parse(path.read_text(encoding="utf-8"), kind))
    except FileNotFoundError:
        raise SchemaError(f"there is no schema file {str(path)!r}") from None
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"schema file {str(path)!r}: {error}") from error


def write(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a schema's content in the format of the file's suffix."""
    write_atomically(path, text(content, _format(Path(path))).encode())


def text(content: Mapping[str, Any], kind: str) -> str:
    """Return a schema's content as text in one of ``FORMATS``."""
    if kind == "toml":
        return _toml(content)
    if kind == "yaml":
        return str(_yaml().safe_dump(dict(content), sort_keys=False, allow_unicode=True))
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


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
