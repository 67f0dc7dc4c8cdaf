"""The pictures of the benchmark page: curves, bars, dots and slopes, as Vega-Lite specifications.

They have the colors and the shapes of `discreet.display.charts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discreet.display.charts import Records, Spec, altair, color_of, finished

_FEW = 8  # ticks at the measured places


def _shape(alt: Any, records: Records, series: str) -> Any:
    names = list(dict.fromkeys(str(record[series]) for record in records))
    return alt.Shape(f"{series}:N", scale=alt.Scale(domain=names), legend=None)


def _logarithmic(alt: Any, records: Records, x: str) -> Any:
    """A logarithmic axis, with ticks where something was measured if there are few such places."""
    places = sorted({float(record[x]) for record in records})
    axis = alt.Axis(values=places, format="~g") if len(places) <= _FEW else alt.Axis(format="~g")
    return alt.X(f"{x}:Q", scale=alt.Scale(type="log", nice=False), title=x, axis=axis)


def curves(
    records: Records,
    *,
    x: str,
    y: str,
    band: tuple[str, str],
    series: str,
    log_y: bool = False,
    colors: Mapping[str, str] | None = None,
) -> Spec:
    """Lines of ``y`` against ``x``, on a logarithmic axis, with their bands, one per ``series``."""
    alt = altair()
    vertical = alt.Scale(type="log") if log_y else alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=list(records))).encode(
        x=_logarithmic(alt, records, x), color=color_of(alt, records, series, colors)
    )
    area = base.mark_area(opacity=0.18).encode(
        y=alt.Y(f"{band[0]}:Q", scale=vertical, title=y), y2=f"{band[1]}:Q"
    )
    line = base.mark_line(point=alt.OverlayMarkDef(size=60, filled=True)).encode(
        y=alt.Y(f"{y}:Q", scale=vertical, title=y),
        shape=_shape(alt, records, series),
        tooltip=[
            f"{series}:N",
            alt.Tooltip(f"{x}:Q", format=".3g"),
            *(alt.Tooltip(f"{name}:Q", format=".4g") for name in dict.fromkeys((y, *band))),
        ],
    )
    return finished(area + line)


def bars(
    records: Records,
    *,
    category: str,
    value: str,
    group: str,
    format: str = ".3g",
    colors: Mapping[str, str] | None = None,
) -> Spec:
    """Horizontal bars of ``value``, grouped."""
    alt = altair()
    chart = (
        alt.Chart(alt.Data(values=list(records)))
        .mark_bar()
        .encode(
            y=alt.Y(f"{category}:N", title=None, sort=None),
            yOffset=alt.YOffset(f"{group}:N", sort=None),
            x=alt.X(f"{value}:Q", title=value),
            color=color_of(alt, records, group, colors),
            tooltip=[f"{category}:N", f"{group}:N", alt.Tooltip(f"{value}:Q", format=format)],
        )
    )
    groups = {record[group] for record in records}
    categories = {record[category] for record in records}
    return finished(chart, height=max(120, 12 * len(groups) * len(categories)))


def dots(
    records: Records,
    *,
    category: str,
    value: str,
    group: str,
    log: bool = False,
    colors: Mapping[str, str] | None = None,
) -> Spec:
    """One line per ``category`` with the ``value`` of every ``group`` on it, to be compared at a glance."""
    alt = altair()
    scale = (
        alt.Scale(type="log", padding=12, nice=False)
        if log
        else alt.Scale(zero=False, nice=False, padding=12)
    )
    base = alt.Chart(alt.Data(values=list(records))).encode(
        y=alt.Y(f"{category}:N", title=None, sort=None, axis=alt.Axis(grid=True))
    )
    span = base.mark_rule(strokeWidth=2, color="#9a9aa5").encode(
        x=alt.X(f"min({value}):Q", scale=scale, title=value), x2=f"max({value}):Q"
    )
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        x=alt.X(f"{value}:Q", scale=scale, title=value),
        color=color_of(alt, records, group, colors),
        shape=_shape(alt, records, group),
        tooltip=[f"{category}:N", f"{group}:N", alt.Tooltip(f"{value}:Q", format=".4g")],
    )
    categories = {record[category] for record in records}
    return finished(span + points, height=max(90, 30 * len(categories)))


def slopes(records: Records, *, x: str, y: str, series: str, theory: str) -> Spec:
    """Points on logarithmic axes, with the line that theory predicts for each series dashed beside them."""
    alt = altair()
    logarithmic = alt.Scale(type="log")
    base = alt.Chart(alt.Data(values=list(records))).encode(
        x=_logarithmic(alt, records, x), color=color_of(alt, records, series, None)
    )
    points = base.mark_point(filled=True, size=60).encode(
        y=alt.Y(f"{y}:Q", scale=logarithmic, title=y, axis=alt.Axis(format="~g")),
        shape=_shape(alt, records, series),
        tooltip=[f"{series}:N", alt.Tooltip(f"{x}:Q", format=".3g"), alt.Tooltip(f"{y}:Q", format=".3g")],
    )
    line = base.mark_line(strokeDash=[6, 4]).encode(y=alt.Y(f"{theory}:Q", scale=logarithmic))
    return finished(line + points)
