"""The pictures of reports and model cards: Vega-Lite specifications, drawn as SVG when a page is written.

Colors are those of Okabe and Ito, which people with any kind of color vision can tell apart; methods also differ in
the shape of their points. Needs the extra ``report``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from discreet.display.console import printable

Spec = dict[str, Any]
Records = Sequence[Mapping[str, Any]]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#882255", "#F0E442")
_HEIGHT = 260
_FEW = 8  # ticks at the measured places
_HALF = 360  # narrower charts have names of two lines
_TWO_COLUMNS = 600  # narrower charts have one column of legend
#: Around a picture of a document, which is cut off at its edges: the letters of the reader's machine may be wider than
#: those that were measured.
ROOM = {"left": 20, "right": 20, "top": 5, "bottom": 5}
_TWO_LINES = r"split(replace(datum.label, regexp(', (?=[^,]*$)'), '\n'), '\n')"
_LINE = 14  # pixels
_DETAILS = re.compile(r' (?:aria-[a-z]+|role|pointer-events)="[^"]*"')  # the figure itself has a label
_POINT = re.compile(r'<path aria-label="([^"]*)"([^>]*aria-roledescription="(?:point|bar|rect mark)"[^>]*)/>')


def require() -> None:
    """Raise ``ImportError`` if the extra ``report`` is missing; called before work whose end would be a chart."""
    for name in ("altair", "vl_convert"):
        if find_spec(name) is None:
            raise ImportError(
                "charts need the packages altair and vl-convert-python: pip install 'discreet[report]'"
            )


def _altair() -> Any:
    require()
    import altair

    altair.data_transformers.disable_max_rows()
    return altair


def _color(alt: Any, records: Records, series: str, colors: Mapping[str, str] | None) -> Any:
    """The color of each series: as given, or in the order of appearance."""
    names = list(dict.fromkeys(str(record[series]) for record in records))
    known = {name: color for name, color in (colors or {}).items() if name in names}
    free = [color for color in COLORS if color not in known.values()] or list(COLORS)
    others = [name for name in names if name not in known]
    known |= {name: free[k % len(free)] for k, name in enumerate(others)}
    chosen = [known[name] for name in names]
    return alt.Color(
        f"{series}:N",
        scale=alt.Scale(domain=names, range=chosen),
        title=None,
        legend=alt.Legend(symbolOpacity=1, symbolStrokeWidth=2),
    )


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
    alt = _altair()
    vertical = alt.Scale(type="log") if log_y else alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=list(records))).encode(
        x=_logarithmic(alt, records, x), color=_color(alt, records, series, colors)
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
    return _finished(area + line)


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
    alt = _altair()
    chart = (
        alt.Chart(alt.Data(values=list(records)))
        .mark_bar()
        .encode(
            y=alt.Y(f"{category}:N", title=None, sort=None),
            yOffset=alt.YOffset(f"{group}:N", sort=None),
            x=alt.X(f"{value}:Q", title=value),
            color=_color(alt, records, group, colors),
            tooltip=[f"{category}:N", f"{group}:N", alt.Tooltip(f"{value}:Q", format=format)],
        )
    )
    groups = {record[group] for record in records}
    categories = {record[category] for record in records}
    return _finished(chart, height=max(120, 12 * len(groups) * len(categories)))


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
    alt = _altair()
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
        color=_color(alt, records, group, colors),
        shape=_shape(alt, records, group),
        tooltip=[f"{category}:N", f"{group}:N", alt.Tooltip(f"{value}:Q", format=".4g")],
    )
    categories = {record[category] for record in records}
    return _finished(span + points, height=max(90, 30 * len(categories)))


def slopes(records: Records, *, x: str, y: str, series: str, theory: str) -> Spec:
    """Points on logarithmic axes, with the line that theory predicts for each series dashed beside them."""
    alt = _altair()
    logarithmic = alt.Scale(type="log")
    base = alt.Chart(alt.Data(values=list(records))).encode(
        x=_logarithmic(alt, records, x), color=_color(alt, records, series, None)
    )
    points = base.mark_point(filled=True, size=60).encode(
        y=alt.Y(f"{y}:Q", scale=logarithmic, title=y, axis=alt.Axis(format="~g")),
        shape=_shape(alt, records, series),
        tooltip=[f"{series}:N", alt.Tooltip(f"{x}:Q", format=".3g"), alt.Tooltip(f"{y}:Q", format=".3g")],
    )
    line = base.mark_line(strokeDash=[6, 4]).encode(y=alt.Y(f"{theory}:Q", scale=logarithmic))
    return _finished(line + points)


def steps(records: Records, *, x: str, y: str, series: str) -> Spec:
    """Histograms over each other: ``y`` from every place of ``x`` to the next."""
    alt = _altair()
    chart = (
        alt.Chart(alt.Data(values=list(records)))
        .mark_area(interpolate="step-after", opacity=0.35, line=True)
        .encode(
            x=alt.X(f"{x}:Q", title=x, scale=alt.Scale(nice=False, zero=False)),
            y=alt.Y(f"{y}:Q", title=y, stack=None),
            color=_color(alt, records, series, None),
        )
    )
    return _finished(chart)


def _finished(chart: Any, height: float = _HEIGHT) -> Spec:
    return dict(chart.properties(height=height).to_dict())


def svg(spec: Spec, width: float, mark: str, background: str | None = None) -> str:
    """A chart as SVG of this width, in the colors of the text around it; ``mark`` tells it apart on a page.

    Points and bars have their numbers as titles, which browsers show under the pointer without a script. On a
    background of its own, for documents, its text is black, and there are no titles.
    """
    require()
    import vl_convert

    ink, grid = ("#1b1b1f", "#e4e4ea") if background else ("currentColor", "#80808059")
    narrow = width < _HALF
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    config = {
        "background": background,
        "padding": ROOM if background else 5,
        "view": {"stroke": grid},
        "axis": {
            **words,
            "gridColor": grid,
            "domainColor": ink,
            "tickColor": ink,
            "titleFontWeight": "normal",
            "labelLimit": (0.42 if narrow else 0.36) * width,
            "labelOverlap": True,
        },
        "axisX": {"labelSeparation": 6, "tickCount": 5 if narrow else 10},
        "axisY": {"tickCount": 6},
        "axisLeft": {"titlePadding": 12},
        "axisRight": {"titlePadding": 16},
        "legend": {
            **words,
            "orient": "bottom",
            "columns": 1 if width < _TWO_COLUMNS else 2,
            "columnPadding": 60,
            "labelLimit": 0.7 * width,
        },
    }
    fitted = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": width}
    shown = _folded(_quoted(spec)) if narrow else _quoted(spec)
    drawn = str(vl_convert.vegalite_to_svg({**shown, **fitted, "config": config}))
    if background is None:
        drawn = _POINT.sub(r"<path\2><title>\1</title></path>", drawn)
    drawn = re.sub(r"<[^>]*>", lambda tag: _DETAILS.sub("", tag[0]), drawn)
    return re.sub(r'(id="|url\(#)', rf"\g<1>{mark}", drawn) if mark else drawn


def _folded(spec: Spec) -> Spec:
    """The specification with names of categories broken at their last comma, for narrow charts."""
    rows = spec.get("data", {}).get("values", [])
    for part in (spec, *spec.get("layer", [])):
        y = part.get("encoding", {}).get("y", {})
        if y.get("type") == "nominal" and all(", " in str(row.get(y["field"])) for row in rows):
            lines = {"labelExpr": _TWO_LINES, "labelOffset": -_LINE / 2, "labelOverlap": False}
            y["axis"] = {**(y.get("axis") or {}), **lines}
    return spec


def _quoted(spec: Any) -> Any:
    """The specification without characters that hide or reverse text."""
    if isinstance(spec, str):
        return printable(spec)
    if isinstance(spec, Mapping):
        return {_quoted(name): _quoted(value) for name, value in spec.items()}
    return [_quoted(part) for part in spec] if isinstance(spec, list) else spec
