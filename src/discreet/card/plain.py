"""Values of Python and NumPy as JSON's own types, exactly, and back again without trust."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The only kinds of numbers a file can hold: fixed size, no objects, least significant byte first.
_KINDS = frozenset({"<f8", "<f4", "<i8", "<i4", "|b1", "|u1", "|i1"})
_MAX_ENTRIES = 1 << 31


def plain(value: Any) -> Any:
    """The same value in JSON's own types; ``TypeError`` where JSON cannot hold it exactly."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # an enumeration member becomes its text
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TypeError(f"JSON cannot hold {type(value).__name__}")


def from_array(array: NDArray[Any]) -> dict[str, Any]:
    """Shape, kind and bytes of an array of numbers; the words of an array of words."""
    array = np.asarray(array)
    if array.dtype.kind == "U" and array.ndim <= 1:
        return {"shape": list(array.shape), "kind": "words", "words": array.ravel().tolist()}
    kind = array.dtype.newbyteorder("<").str
    if kind not in _KINDS:
        raise TypeError(f"a model file holds arrays of numbers, not of {array.dtype}")
    content = np.ascontiguousarray(array, dtype=kind).tobytes()
    return {"shape": list(array.shape), "kind": kind, "base64": base64.b64encode(content).decode()}


def to_array(fields: Any) -> NDArray[Any]:
    """The array that ``from_array`` described; ``TypeError`` or ``ValueError`` for anything else."""
    fields = typed(fields, dict)
    if fields.get("kind") == "words":
        words = np.array([typed(word, str) for word in typed(fields["words"], list)], dtype=np.str_)
        return words.reshape([typed(size, int) for size in typed(fields["shape"], list)])
    if set(fields) != {"shape", "kind", "base64"} or fields["kind"] not in _KINDS:
        raise ValueError("not the description of an array")
    shape = tuple(typed(size, int) for size in typed(fields["shape"], list))
    if len(shape) > 8 or any(size < 0 for size in shape) or math.prod(shape) > _MAX_ENTRIES:
        raise ValueError(f"an array cannot have the shape {shape}")
    try:
        content = base64.b64decode(typed(fields["base64"], str), validate=True)
    except binascii.Error as error:
        raise ValueError(f"an array's bytes are damaged: {error}") from None
    kind = np.dtype(fields["kind"])
    if len(content) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{len(content)} bytes are not an array of shape {shape}")
    return np.frombuffer(content, dtype=kind).reshape(shape).astype(kind.newbyteorder("="))


def labels(values: Any) -> NDArray[Any]:
    """A label set: all text or all numbers of one type."""
    kinds = {type(value) for value in typed(values, list)}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        raise TypeError("the classes must be all text or all numbers")
    return np.array(values)


def typed(value: Any, kind: type) -> Any:
    """``value``, if it is of this type; ``bool`` does not count as ``int``."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def strings(value: Any) -> tuple[str, ...] | None:
    """A tuple of strings, or None."""
    return None if value is None else tuple(typed(item, str) for item in typed(value, list))


def no_constant(text: str) -> float:
    """For ``json.loads``: NaN and infinity are not JSON."""
    raise ValueError(f"{text} is not JSON")


def no_duplicates(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """For ``json.loads``: two entries of one name could show one thing to a reader and another to a machine."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an entry appears twice")
    return content
