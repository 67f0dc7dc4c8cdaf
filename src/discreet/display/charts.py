"""The pictures of reports and model cards: Vega-Lite specifications, and one page that shows them without a network.

Colors are those of Okabe and Ito, which people with any kind of color vision can tell apart; methods also differ in
the shape of their points. Needs the extra ``report``.
"""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from discreet.display.console import printable

Spec = dict[str, Any]
Records = Sequence[Mapping[str, Any]]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#882255", "#F0E442")
_HEIGHT = 260
_FEW = 8  # ticks at the measured places
_WIDTH = 640  # of pictures outside a page
_LONG = 6  # headings of a page that lists its contents


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
        y=alt.Y(f"{band[0]}:Q", scale=vertical, title=y),
        y2=f"{band[1]}:Q",
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
        y=alt.Y(f"{category}:N", title=None, sort=None, axis=alt.Axis(grid=True, labelLimit=260))
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
    line = base.mark_line(strokeDash=[6, 4]).encode(
        y=alt.Y(f"{theory}:Q", scale=logarithmic),
    )
    return _finished(line + points)


def intervals(records: Records, *, name: str, value: str, low: str, high: str) -> Spec:
    """One value with its interval per line."""
    alt = _altair()
    base = alt.Chart(alt.Data(values=list(records))).encode(y=alt.Y(f"{name}:N", title=None, sort=None))
    rule = base.mark_rule(strokeWidth=2, color=COLORS[0]).encode(
        x=alt.X(f"{low}:Q", title=value, scale=alt.Scale(zero=False)), x2=f"{high}:Q"
    )
    point = base.mark_point(filled=True, size=60, color=COLORS[1]).encode(
        x=f"{value}:Q",
        tooltip=[f"{name}:N", *(alt.Tooltip(f"{field}:Q", format=".4g") for field in (value, low, high))],
    )
    return _finished(rule + point, height=max(80, 18 * len(records)))


def _finished(chart: Any, height: float = _HEIGHT) -> Spec:
    return dict(chart.properties(width="container", height=height).to_dict())


def _escaped(text: str) -> str:
    """Text as a page may hold it: without markup, and without marks that hide or reverse what follows."""
    return html.escape(printable(text, keep="\n\t"), quote=True)


def fragment(
    title: str,
    paragraphs: Sequence[str],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]],
) -> str:
    """A title, paragraphs and folded tables (title, header, rows) for a notebook: no style, no script."""
    parts = [f"<h4>{_escaped(title)}</h4>", *(f"<p>{_escaped(text)}</p>" for text in paragraphs)]
    for name, header, rows in tables:
        content = _table(header, [[_escaped(str(cell)) for cell in row] for row in rows])
        parts.append(f"<details><summary>{_escaped(name)}</summary>{content}</details>")
    return f"<div>{''.join(parts)}</div>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are escaped already."""
    head = "".join(f"<th>{_escaped(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Page:
    """A self-contained HTML page, built from top to bottom.

    >>> page = Page("Results")
    >>> page.text("Nothing was tuned on private data.")
    >>> page.html().startswith("<!doctype html>")
    True
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._specs: list[Spec] = []
        self._names: dict[str, int] = {}
        self._headings: list[str] = []

    def heading(self, text: str, level: int = 2) -> None:
        """A heading; the page's own title is level 1. Those of level 2 are listed at the top of a long page."""
        mark = ""
        if level == 2:
            mark = f' id="part{len(self._headings)}"'
            self._headings.append(text)
        self._parts.append(f"<h{level}{mark}>{_escaped(text)}</h{level}>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{_escaped(text)}</p>")

    def preformatted(self, text: str) -> None:
        """Text as it is, such as a privacy statement."""
        self._parts.append(f"<pre>{_escaped(text)}</pre>")

    def notes(self, summary: str, lines: Sequence[str]) -> None:
        """Lines that are shown when a reader asks for them."""
        items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
        self._parts.append(f"<details><summary>{_escaped(summary)}</summary><ul>{items}</ul></details>")

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Charts added inside stand beside each other where the window is wide enough."""
        self._parts.append('<div class="grid">')
        yield
        self._parts.append("</div>")

    def chart(self, spec: Spec, caption: str, name: str | None = None) -> None:
        """A picture with the sentence that says what it shows; with a name, it is one of `pictures`."""
        number = len(self._specs)
        self._specs.append(spec)
        if name is not None:
            self._names[name] = number
        self._parts.append(
            f'<figure><div class="chart" id="chart{number}" role="img" aria-label="{_escaped(caption)}">'
            f"</div><figcaption>{_escaped(caption)}</figcaption></figure>"
        )

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        best: Collection[tuple[int, int]] = (),
    ) -> None:
        """A table; ``best`` names the cells to emphasize, as (row, column)."""
        cells = [
            [
                f"<b>{_escaped(cell)}</b>" if (number, column) in best else _escaped(cell)
                for column, cell in enumerate(row)
            ]
            for number, row in enumerate(rows)
        ]
        self._parts.append(f'<div class="wide">{_table(header, cells)}</div>')

    def pictures(self) -> dict[str, str]:
        """The named charts as SVG, on white, for documents that cannot run scripts."""
        import vl_convert

        fixed = {"width": _WIDTH, "background": "white", "config": _LIGHT}
        return {
            name: str(vl_convert.vegalite_to_svg({**self._specs[number], **fixed}))
            for name, number in self._names.items()
        }

    def html(self) -> str:
        """The whole page. With charts, the drawing library is inside it."""
        library = ""
        if self._specs:
            import vl_convert

            library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        # Inside a script "</script" would end it, and "<!--<script" would keep it from ending.
        specs = json.dumps(self._specs, allow_nan=False).replace("<", "\\u003c")
        script = (
            f"<script>{library}</script><script>const specs = {specs};{_DRAW}</script>" if self._specs else ""
        )
        title = _escaped(self._title)
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
            f'<body><header><h1>{title}</h1><button id="mode" type="button">dark / light</button></header>'
            f"<main>{self._contents()}{''.join(self._parts)}</main>{script}<script>{_MODE}</script></body></html>"
        )

    def _contents(self) -> str:
        if len(self._headings) < _LONG:
            return ""
        links = (f'<li><a href="#part{k}">{_escaped(text)}</a></li>' for k, text in enumerate(self._headings))
        return f"<nav><details><summary>Contents</summary><ul>{''.join(links)}</ul></details></nav>"


_LIGHT = {
    "view": {"stroke": "#e4e4ea"},
    "axis": {"gridColor": "#e4e4ea", "labelFontSize": 12, "titleFontSize": 12},
    "legend": {"orient": "bottom", "columns": 2, "labelLimit": 320, "labelFontSize": 12},
}

_STYLE = """
:root{color-scheme:light;--ink:#1b1b1f;--paper:#ffffff;--faint:#e4e4ea;--soft:#5c5c66}
:root[data-mode=dark]{color-scheme:dark;--ink:#ececf1;--paper:#17171b;--faint:#34343c;--soft:#a9a9b4}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0}
header,main{max-width:64rem;margin:0 auto;padding:0 1rem}
header{display:flex;align-items:center;justify-content:space-between;gap:1rem}
h1{font-size:1.7rem}h2{margin-top:2.5rem;border-top:1px solid var(--faint);padding-top:1rem}
button{font:inherit;padding:.3rem .8rem;border:1px solid var(--soft);border-radius:.5rem;background:none;color:inherit}
figure{margin:1.5rem 0}figcaption{color:var(--soft);font-size:.9rem}.chart{width:100%;min-height:120px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:0 2rem}
.grid figure{min-width:0}
details{color:var(--soft);font-size:.9rem;margin:1rem 0}summary{cursor:pointer}a{color:inherit}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .7rem;text-align:left;border-bottom:1px solid var(--faint);white-space:nowrap}
td:first-child,th:first-child{white-space:normal;min-width:7rem}
pre{white-space:pre-wrap;background:var(--faint);padding:1rem;border-radius:.5rem;font-size:.85rem}
""".replace("\n", "")

_DRAW = """
function draw(){const dark=document.documentElement.dataset.mode==='dark';const ink=dark?'#ececf1':'#1b1b1f';
const grid=dark?'#34343c':'#e4e4ea';const config={background:'transparent',view:{stroke:grid},
axis:{labelColor:ink,titleColor:ink,gridColor:grid,domainColor:ink,tickColor:ink,labelFontSize:12,titleFontSize:12},
legend:{labelColor:ink,titleColor:ink,orient:'bottom',labelLimit:300,labelFontSize:12}};
specs.forEach((spec,i)=>{const columns=document.getElementById('chart'+i).clientWidth<600?1:2;
const own=Object.assign({},config,{legend:Object.assign({columns:columns},config.legend)});
vegaEmbed('#chart'+i,Object.assign({},spec,{config:own}),{actions:false,renderer:'svg'})
.then(()=>{document.documentElement.dataset.drawn=(+(document.documentElement.dataset.drawn||0)+1)})});}
window.redraw=draw;
""".replace("\n", "")

_MODE = """
const root=document.documentElement;
function show(mode){root.dataset.mode=mode;if(window.redraw)window.redraw();}
document.getElementById('mode').onclick=()=>show(root.dataset.mode==='dark'?'light':'dark');
show(matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light');
""".replace("\n", "")
