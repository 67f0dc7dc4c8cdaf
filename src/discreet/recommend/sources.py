"""Where ratings come from: the one place that knows how they are stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from discreet.recommend.ratings import Clicks, Scale, Users, read
from discreet.records.dask import is_dask


@contextmanager
def opened(
    user_items: Any, scale: Scale | Clicks, catalogue: Any, *, out_of_bounds: str, duplicates: str
) -> Iterator[tuple[Users, NDArray[Any]]]:
    """All users and the catalogue: a matrix or data frame in memory, the name of a Parquet file, a Dask collection."""
    rules = {"out_of_bounds": out_of_bounds, "duplicates": duplicates}
    if isinstance(user_items, str | os.PathLike):
        from discreet.recommend import files

        with files.opened(user_items, scale, catalogue, **rules) as ready:
            yield ready
    elif is_dask(user_items):
        from discreet.recommend import cluster

        yield cluster.opened(user_items, scale, catalogue, **rules)
    else:
        yield read(user_items, scale, catalogue, **rules)
