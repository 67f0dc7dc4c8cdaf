"""CSV files: every cell is read as text, and no line can touch the rows of others.

The schema interprets the cells. If a reader guessed the type of a column, the treatment of every row would depend on
every other row, which no sensitivity bound covers.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from discreet._files import write_atomically
from discreet.tables.reading import TableError, quoted

_LINES = 1 << 14  # of one batch
_LONGEST_LINE = 1 << 20  # Arrow reads blocks of this size, and no line may be longer
_UTF16 = "it is UTF-16 text; save it as UTF-8, for instance by `iconv -f utf-16 -t utf-8 OLD > NEW`"
_OTHER_FORMATS = {
    b"PAR1": "it is a Parquet file, whose name must end in .parquet",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"PK\x03\x04": "it is an archive or a spreadsheet; save the table in it as CSV",
    b"\x1f\x8b": "it is compressed; unpack it first",
    b"\x89PNG": "it is a picture",
}
_SAVE_AS_UTF8 = "save it as UTF-8, for instance by `iconv -f latin1 -t utf-8 OLD > NEW`"


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Write named columns of equal length as a CSV file that only its owner can read, completely or not at all."""
    import pyarrow as pa
    import pyarrow.csv as csv

    table = pa.table({name: pa.array(np.asarray(values)) for name, values in columns.items()})
    stream = io.BytesIO()
    csv.write_csv(table, stream)
    write_atomically(path, stream.getvalue(), private=True)  # predictions reveal something about the rows


def read_csv(path: Path, columns: Sequence[str] | None, bad_rows: str, separator: str) -> Any:
    """Read text cells; malformed lines are an error, or each is one row of missing cells."""
    import pyarrow as pa
    import pyarrow.csv as csv

    file = CsvFile(str(path), lambda: path.open("rb"), columns, bad_rows=bad_rows, separator=separator)
    if bad_rows == "null":
        return pa.Table.from_batches(file.batches(), schema=file.schema)
    with file.errors():  # all at once, which is faster than batch by batch
        return csv.read_csv(path, **file.options())


class CsvFile:
    """A CSV file whose cells are read as text, in batches; its first line is read and checked at once.

    Parameters
    ----------
    name : for errors.
    stream : opens the file for reading bytes.
    columns : names of the columns to read, all by default.
    bad_rows : with "null" no line raises an error, as in `read_table`.
    separator : the character between fields.
    """

    def __init__(
        self,
        name: str,
        stream: Callable[[], IO[bytes]],
        columns: Sequence[str] | None = None,
        *,
        bad_rows: str = "error",
        separator: str = ",",
    ) -> None:
        import pyarrow as pa

        self.name, self._stream, self._by_lines = name, stream, bad_rows == "null"
        self._separator = separator
        self._refuse_other_formats()
        self._names = self._header()
        _require_in_header(name, self._names, columns)
        self._wanted = list(columns) if columns is not None else self._names
        self.schema = pa.schema([(name, pa.string()) for name in self._wanted])

    def batches(self) -> Iterator[Any]:
        """Yield batches of rows."""
        import pyarrow.csv as csv

        if self._by_lines:
            yield from self._lines()
            return
        with self.errors(), self._stream() as opened, csv.open_csv(opened, **self.options()) as reader:
            yield from reader

    def _header(self) -> list[str]:
        import pyarrow.csv as csv

        with self._stream() as stream:
            if not self._by_lines:
                parse = csv.ParseOptions(delimiter=self._separator)
                with self.errors(), csv.open_csv(stream, parse_options=parse) as reader:
                    return list(reader.schema.names)
            names = _fields(next(stream, b""), self._separator)
        if names is None or len(set(names)) != len(names):
            raise TableError(f"{self.name!r} does not begin with a line of different column names in UTF-8")
        return names

    def _lines(self) -> Iterator[Any]:
        """Read one line as one row, whatever it holds: no line may swallow, split or delete the rows of others.

        Quotes must therefore close within their line, and a blank or malformed line is a row of missing cells.
        """
        import pyarrow as pa

        places, width = [self._names.index(name) for name in self._wanted], len(self._names)
        nothing: list[str | None] = [None] * width
        with self._stream() as stream:
            next(stream)
            while lines := list(itertools.islice(stream, _LINES)):
                rows = [
                    fields if len(fields := _fields(line, self._separator) or []) == width else nothing
                    for line in lines
                ]
                cells = [pa.array([row[place] or None for row in rows], pa.string()) for place in places]
                yield pa.record_batch(cells, schema=self.schema)

    def options(self) -> dict[str, Any]:
        """Return how Arrow reads the file: every cell as text, an empty one as missing."""
        import pyarrow as pa
        import pyarrow.csv as csv

        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            include_columns=self._wanted,
            strings_can_be_null=True,
            null_values=[""],
        )
        # A blank line is no row of several columns, but the missing cell of a single one.
        parse = csv.ParseOptions(delimiter=self._separator, ignore_empty_lines=len(self._names) > 1)
        return {"parse_options": parse, "convert_options": convert}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Replace errors of Arrow, which quote somebody's record, by errors that name only the kind of problem."""
        import pyarrow as pa

        try:
            yield
        except UnicodeDecodeError:
            raise TableError(f"{self.name!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            if "UTF8" in str(error):
                raise TableError(f"{self.name!r} is not UTF-8 text; {_SAVE_AS_UTF8}") from None
            if "straddling" in str(error):
                raise TableError(
                    f"{self.name!r} has a line of more than {_LONGEST_LINE >> 20} MB; is a quotation mark left open?"
                ) from None
            hint = _other_separator(self._first) or (
                "it needs a line of column names and then as many fields in each line, separated by "
                f"{self._separator!r}; fields that contain it stand in quotation marks"
            )
            raise TableError(
                f"{self.name!r} is not a readable CSV file (lines with different numbers of fields); {hint}"
            ) from None

    def _refuse_other_formats(self) -> None:
        """Raise if the first line, the only one that may be described, shows another kind of file."""
        with self._stream() as stream:
            line = stream.readline(_LONGEST_LINE)
        self._first = _fields(line, self._separator) or []
        for mark, kind in _OTHER_FORMATS.items():
            if line.startswith(mark):
                raise TableError(f"{self.name!r} is not a CSV file: {kind}")
        if b"\0" in line:
            raise TableError(
                f"{self.name!r} is not a CSV file: its first line holds zero bytes, as UTF-16 and what is not text do"
            )


def _fields(line: bytes, separator: str) -> list[str] | None:
    """Return the fields of one line; None if it is not one well-formed line of text."""
    # What is not UTF-8 becomes characters that match no domain.
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig", errors="replace")
    if "\r" in text or "\0" in text:
        return None
    try:
        rows = list(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _other_separator(names: Sequence[str]) -> str:
    """Return the advice for a first line with fields between other marks; empty if there are none."""
    found = [mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]]
    if not found:
        return ""
    mark = repr(found[0])
    shown = "tab" if found[0] == "\t" else mark
    return (
        f"its fields are separated by {mark}: save it with commas, or read it with separator={mark} (in the shell: "
        f"--separator {shown})"
    )


def _require_in_header(file: str, names: Sequence[str], columns: Sequence[str] | None) -> None:
    """Raise unless the first line of a CSV file names the columns; the line is not quoted, it may be a record."""
    if len(set(names)) < len(names):
        twice = [name for name in columns or [] if list(names).count(name) > 1]
        named = f"more than one column is named {quoted(twice)}"
        which = named if twice else "two columns have the same name"
        raise TableError(f"{file!r}: {which} in its first line; rename all but one")
    missing = [name for name in columns or [] if name not in names]
    if not missing:
        return
    wanted = {name.casefold() for name in missing}
    alike = [name for name in names if name.strip().casefold() in wanted]
    if alike:
        hint = f"it has {quoted(alike)}, and names must agree in every letter"
    elif separated := _other_separator(names):
        hint = separated
    elif any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        hint = f"its first line is not UTF-8 text; {_SAVE_AS_UTF8}"
    elif len(missing) == len(columns or []):
        hint = (
            f"its first line, which must hold the names of the columns, has none of them among {len(names)} fields; "
            "if the names are missing, add them (the line is not shown here: it may be somebody's record)"
        )
    else:
        hint = f"its first line names {len(names)} columns, but not these"
    raise TableError(f"{file!r}: no such column: {quoted(missing)}; {hint}")
