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


def altair() -> Any:
    """Return the library that makes specifications; ``ImportError`` without the extra ``report``."""
    require()
    import altair as alt

    alt.data_transformers.disable_max_rows()
    return alt


def color_of(alt: Any, records: Records, series: str, colors: Mapping[str, str] | None = None) -> Any:
    """Choose the color of each series: as given, or in the order of appearance."""
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


def steps(records: Records, *, x: str, y: str, series: str) -> Spec:
    """Draw histograms over each other: ``y`` from every place of ``x`` to the next."""
    alt = altair()
    chart = (
        alt.Chart(alt.Data(values=list(records)))
        .mark_area(interpolate="step-after", opacity=0.35, line=True)
        .encode(
            x=alt.X(f"{x}:Q", title=x, scale=alt.Scale(nice=False, zero=False)),
            y=alt.Y(f"{y}:Q", title=y, stack=None),
            color=color_of(alt, records, series),
        )
    )
    return finished(chart)


def finished(chart: Any, height: float = _HEIGHT) -> Spec:
    """Return the specification of a chart of this height."""
    return dict(chart.properties(height=height).to_dict())


def svg(spec: Spec, width: float, mark: str, background: str | None = None) -> str:
    """Draw a chart as SVG of this width, in the colors of the text around it; ``mark`` is unique on a page.

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
    """Break names of categories at their last comma, for narrow charts."""
    rows = spec.get("data", {}).get("values", [])
    for part in (spec, *spec.get("layer", [])):
        y = part.get("encoding", {}).get("y", {})
        if y.get("type") == "nominal" and all(", " in str(row.get(y["field"])) for row in rows):
            lines = {"labelExpr": _TWO_LINES, "labelOffset": -_LINE / 2, "labelOverlap": False}
            y["axis"] = {**(y.get("axis") or {}), **lines}
    return spec


def _quoted(spec: Any) -> Any:
    """Escape characters that hide or reverse text."""
    if isinstance(spec, str):
        return printable(spec)
    if isinstance(spec, Mapping):
        return {_quoted(name): _quoted(value) for name, value in spec.items()}
    return [_quoted(part) for part in spec] if isinstance(spec, list) else spec
