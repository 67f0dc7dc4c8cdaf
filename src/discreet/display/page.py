"""One look for every page and notebook display of the library: plain HTML that needs no script and no network.

A page is one file. Charts are drawn when it is written, numbers are bars in tables, colors follow the reader's system,
and paper is white. All text is escaped, and a policy in the page forbids scripts and requests, whatever it holds.
"""

from __future__ import annotations

import html
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from discreet._files import write_atomically
from discreet.display.charts import Spec, svg
from discreet.display.console import printable

Mood = Literal["good", "bad", "plain"]
NOT_RECORDED = "not recorded"

_LONG = 6  # headings of a page that lists its contents
_WIDE, _HALF, _NARROW = 760, 366, 340  # of charts: alone, side by side, on a phone
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Bar:
    """One number in a list of numbers, drawn beside its name.

    Attributes
    ----------
    name : what it is.
    value : the number; NaN draws nothing.
    text : the number as it is written.
    range : its interval as it is written.
    low, high : ends of its interval, infinite where the interval has no end; None draws a bar from the origin.
    band : half of the width of a narrower interval inside it, drawn thicker.
    before : a number to compare it with, drawn as a line.
    filled : whether a bar is drawn from the origin, interval or not.
    note : more about it, written below its name.
    """

    name: str
    value: float
    text: str
    range: str = ""
    low: float | None = None
    high: float | None = None
    band: float | None = None
    before: float | None = None
    filled: bool = False
    note: str = ""


@dataclass(frozen=True)
class _Drawing:
    """A chart that is drawn when its page is: for wide screens and for phones."""

    spec: Spec
    width: int
    number: int

    def __str__(self) -> str:
        return "".join(
            f'<span class="{size}">{svg(self.spec, width, f"c{self.number}{size[0]}")}</span>'
            for size, width in (("wide", self.width), ("narrow", _NARROW))
        )


class Page:
    """A self-contained HTML page, built from top to bottom.

    Parameters
    ----------
    title : of the page.
    kind : what kind of page it is, written above the title.

    Examples
    --------
    >>> page = Page("Results")
    >>> page.text("Nothing was tuned on private data.")
    >>> page.html().startswith("<!doctype html>"), "<script" in page.html()
    (True, False)
    """

    def __init__(self, title: str, kind: str = "") -> None:
        self._title, self._kind = title, kind
        self._parts: list[str | _Drawing] = []
        self._charts: list[Spec] = []
        self._names: dict[str, int] = {}
        self._headings: list[str] = []
        self._beside = False

    # -- words ----------------------------------------------------------------------------------------------

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading. The page's own title is level 1; headings of level 2 are listed at the top of a long page."""
        mark = ""
        if level == 2:
            mark = f' id="part{len(self._headings)}"'
            self._headings.append(text)
        self._parts.append(f"<h{level}{mark}>{escaped(text)}</h{level}>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escaped(text)}</p>")

    def verdict(self, text: str, more: str = "", mood: Mood = "plain") -> None:
        """Add the most important sentence of the page, and what explains it."""
        below = f"<br>{escaped(more)}" if more else ""
        self._parts.append(f'<p class="verdict {mood}"><strong>{escaped(text)}</strong>{below}</p>')

    def preformatted(self, text: str) -> None:
        """Add text with its line breaks, such as a privacy statement."""
        self._parts.append(f"<pre>{escaped(text)}</pre>")

    def items(self, lines: Iterable[str]) -> None:
        """Add a list."""
        self._parts.append(f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>")

    def notes(self, summary: str, lines: Sequence[str]) -> None:
        """Add a list that is folded under its summary."""
        with self.folded(summary):
            self.items(lines)

    def to_sign(self, lines: Iterable[str], roles: Sequence[str] = ("Name", "Date", "Signature")) -> None:
        """Add statements to be checked one by one, with places for a signature."""
        boxes = "".join(f"<li>{escaped(line)}</li>" for line in lines)
        places = "".join(f"<span>{escaped(role)}</span>" for role in roles)
        self._parts.append(f'<ul class="boxes">{boxes}</ul><p class="sign">{places}</p>')

    def facts(self, pairs: Mapping[str, str | None]) -> None:
        """Add names with their values; None and empty values are shown as not recorded."""
        rows = "".join(
            f"<div><dt>{escaped(name)}</dt><dd>{escaped(value) if value else f'<i>{NOT_RECORDED}</i>'}</dd></div>"
            for name, value in pairs.items()
        )
        self._parts.append(f"<dl>{rows}</dl>")

    # -- places ---------------------------------------------------------------------------------------------

    @contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """Fold what is added inside under its summary; it is not printed."""
        self._parts.append(f"<details><summary>{escaped(summary)}</summary>")
        yield
        self._parts.append("</details>")

    @contextmanager
    def section(self, title: str, folded: bool = False) -> Iterator[None]:
        """Begin a part of the page with a heading, or fold it under its title."""
        if not folded:
            self.heading(title)
            yield
            return
        with self.folded(title):
            yield

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Place charts added inside beside each other where the window is wide enough."""
        self._parts.append('<div class="grid">')
        self._beside = True
        yield
        self._beside = False
        self._parts.append("</div>")

    # -- numbers --------------------------------------------------------------------------------------------

    def chart(self, spec: Spec, caption: str, name: str | None = None) -> None:
        """Add a picture with the sentence that says what it shows; with a name, it is one of `pictures`."""
        number = len(self._charts)
        self._charts.append(spec)
        if name is not None:
            self._names[name] = number
        self._parts.append(f'<figure><div class="chart" role="img" aria-label="{escaped(caption)}">')
        self._parts.append(_Drawing(spec, _HALF if self._beside else _WIDE, number))
        self._parts.append(f"</div><figcaption>{escaped(caption)}</figcaption></figure>")

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[object]],
        best: Collection[tuple[int, int]] = (),
        *,
        wrapped: bool = False,
    ) -> None:
        """Add a table: of numbers, which scrolls where it is wider than the page, or of words, which wrap.

        ``best`` names the cells to emphasize, as (row, column).
        """
        cells = [
            [
                f"<b>{escaped(cell)}</b>" if (number, column) in best else escaped(cell)
                for column, cell in enumerate(row)
            ]
            for number, row in enumerate(rows)
        ]
        box = '<div class="words">' if wrapped else '<div class="scroll" tabindex="0">'
        self._parts.append(f"{box}{_table(header, cells)}</div>")

    def bars(
        self,
        groups: Mapping[str, Sequence[Bar]],
        header: tuple[str, str, str] = ("", "", ""),
        *,
        origin: float = 0.0,
        ends: tuple[float, float] | None = None,
    ) -> None:
        """Add numbers with their intervals on one scale, by the name of their group, which may be empty.

        header : of the names, the numbers and the bars.
        origin : where bars begin; a line is drawn there.
        ends : of the scale, which is then drawn; what is shown decides if not given.
        """
        low, high = ends or _ends([bar for group in groups.values() for bar in group], origin)
        titles = "".join(f'<th scope="col">{escaped(name)}</th>' if name else "<td></td>" for name in header)
        head = f"<thead><tr>{titles}</tr></thead>" if any(header) else ""
        tables = []
        for number, (group, lines) in enumerate(groups.items()):
            named = f"<caption>{escaped(group)}</caption>" if group else ""
            named += '<colgroup><col class="name"><col class="value"><col></colgroup>'
            body = "".join(_line(bar, origin, low, high, ends is not None) for bar in lines)
            tables.append(f'<table class="bars">{named}{"" if number else head}<tbody>{body}</tbody></table>')
        self._parts.append(f'<div class="{"set" if len(tables) > 1 else "one"}">{"".join(tables)}</div>')

    def shares(self, parts: Sequence[tuple[str, float, str]]) -> None:
        """Add one bar, divided: name, share of the whole and text of every part; the rest stays empty."""
        drawn, at = [], 0.0
        for number, (_, share, _) in enumerate(parts):
            width = 100 * min(max(share, 0.0), 1.0 - at / 100)
            drawn.append(
                f'<rect class="part{number % 3}" x="{at:.2f}" width="{width:.2f}" height="10"></rect>'
            )
            at += width
        legend = "".join(
            f'<li><i class="part{number % 3}"></i>{escaped(name)}: <b>{escaped(text)}</b></li>'
            for number, (name, _, text) in enumerate(parts)
        )
        view = 'viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"'
        self._parts.append(
            f'<svg class="shares" {view}>{"".join(drawn)}</svg><ul class="legend">{legend}</ul>'
        )

    # -- the whole ------------------------------------------------------------------------------------------

    def pictures(self) -> dict[str, str]:
        """Draw the named charts as SVG, on white, for documents."""
        return {
            name: svg(self._charts[number], _WIDE, "", background="white")
            for name, number in self._names.items()
        }

    def html(self) -> str:
        """Return the whole page."""
        title = escaped(self._title)
        kind = f'<p class="kind">{escaped(self._kind)}</p>' if self._kind else ""
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<style>{STYLE}{_PAGE_STYLE}</style></head><body class="discreet"><header>{kind}<h1>{title}</h1></header>'
            f"<main>{self._contents()}{self._body()}</main></body></html>"
        )

    def fragment(self) -> str:
        """Return the same content for a notebook, in the notebook's own colors."""
        return (
            f'<div class="discreet"><style>{STYLE}</style><p><strong>{escaped(self._title)}</strong></p>'
            f"{self._body()}</div>"
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all."""
        write_atomically(path, self.html().encode())

    def _body(self) -> str:
        return "".join(str(part) for part in self._parts)

    def _contents(self) -> str:
        if len(self._headings) <= _LONG:
            return ""
        links = (f'<li><a href="#part{k}">{escaped(text)}</a></li>' for k, text in enumerate(self._headings))
        return f"<nav><details><summary>Contents</summary><ul>{''.join(links)}</ul></details></nav>"


def escaped(text: object) -> str:
    """Escape markup, and marks that hide or reverse what follows."""
    return html.escape(printable(text, keep="\n\t"), quote=True)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table of escaped cells; columns of numbers are aligned to the right."""
    right = [
        bool(rows) and all(_NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(header))
    ]
    marks = [' class="number"' if number else "" for number in right]
    head = "".join(
        f'<th scope="col"{mark}>{escaped(cell)}</th>' if cell else f"<td{mark}></td>"
        for cell, mark in zip(header, marks, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{mark}>{cell}</td>' for cell, mark in zip(row, marks, strict=True))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_NUMBER = re.compile(r"(<b>)?[-+−]?[\d.,]+(e[-+]?\d+)?%?(</b>)?")


def _ends(bars: Sequence[Bar], origin: float) -> tuple[float, float]:
    """Return the ends of a scale that holds the origin and every finite number and end of an interval."""
    shown = [origin]
    for bar in bars:
        wide = bar.band or 0.0
        shown += [
            bar.value - wide,
            bar.value + wide,
            *(end for end in (bar.low, bar.high) if end is not None),
        ]
    finite = [number for number in shown if math.isfinite(number)]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _line(bar: Bar, origin: float, low: float, high: float, whole: bool) -> str:
    """Lay out one row: name, text and picture of a number; ``whole`` draws the scale, too."""

    def place(value: float) -> float:
        return 2 + 96 * (min(max(value, low), high) - low) / (high - low)

    zero = place(origin)
    drawn = [f'<path class="scale" d="M{place(low):.2f} 10H{place(high):.2f}"/>'] if whole else []
    drawn.append(f'<path class="zero" d="M{zero:.2f} 0V20"/>')
    if math.isfinite(bar.value):
        at = place(bar.value)
        if bar.filled or bar.low is None or bar.high is None:
            start = min(zero, at)
            drawn.append(f'<rect x="{start:.2f}" y="5" width="{abs(at - zero):.2f}" height="10"/>')
        if bar.low is not None and bar.high is not None:
            drawn.append(f'<path class="whole" d="M{place(bar.low):.2f} 10H{place(bar.high):.2f}"/>')
        if bar.before is not None:
            drawn.append(f'<path class="before" d="M{place(bar.before):.2f} 1V19"/>')
        if bar.band is not None:
            least, most = bar.value - bar.band, bar.value + bar.band
            if bar.low is not None and bar.high is not None:
                least, most = max(least, bar.low), min(most, bar.high)
            thick = f"M{place(least):.2f} 10H{place(most):.2f}"
            drawn.append(f'<path class="band" d="{thick}"/>')
        drawn.append(f'<path class="point" d="M{at:.2f} 3V17"/>')
    note = f"<small>{escaped(bar.note)}</small>" if bar.note else ""
    name = escaped(bar.name).replace("_", "_<wbr>")
    text = escaped(bar.text) + (f" <small>{escaped(bar.range)}</small>" if bar.range else "")
    view = 'viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"'
    return (
        f'<tr><th scope="row">{name}{note}</th><td class="number">{text}</td>'
        f"<td><svg {view}>{''.join(drawn)}</svg></td></tr>"
    )


_RULES = """
{font:16px/1.5 system-ui,sans-serif;max-width:50rem}
*{box-sizing:border-box}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-top:1px solid var(--faint);padding-top:1rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p,li,dd,th,td{overflow-wrap:anywhere}
p{margin:.6rem 0}
ul{padding-left:1.3rem}li{margin:.2rem 0}
.verdict{padding:.7rem 1rem;border-left:.35rem solid var(--accent);background:var(--tint);border-radius:.2rem}
.verdict.good{border-color:var(--good)}.verdict.bad{border-color:var(--bad)}
.verdict.bad strong{color:var(--bad)}.verdict.good strong{color:var(--good)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:.5rem 1.5rem;margin:1rem 0}
dt{color:var(--soft);font-size:.8rem}dd{margin:0}
dd i{color:var(--soft)}
figure{margin:1.2rem 0}figcaption{color:var(--soft);font-size:.9rem}
.chart svg{max-width:100%;height:auto;overflow:visible}.narrow{display:none}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,23rem),1fr));gap:0 2rem}
.grid figure{min-width:0}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--soft)}a{color:inherit}
.scroll{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;background:none}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid var(--faint);vertical-align:top}
.scroll th,.scroll td{white-space:nowrap;overflow-wrap:normal}
.scroll td:first-child:not(.number){white-space:normal;min-width:12rem}
.words{margin:.8rem 0}.words td:first-child{font-weight:600;overflow-wrap:normal}
.words td:last-child{min-width:6.5rem}
th{font-weight:600}.number{text-align:right}
table.bars{width:100%;table-layout:fixed;margin:.8rem 0}
.bars .name{width:30%}.bars .value{width:24%}
.set .bars .name{width:42%}.set .bars .value{width:20%}
.bars th,.bars td{padding:.12rem .7rem .12rem 0;border-bottom:0;vertical-align:middle}
.bars th[scope=row]{font-weight:400;line-height:1.25}
.set{columns:2 22rem;column-gap:2.5rem;margin:.8rem 0}
.set table.bars{margin:0 0 .9rem;break-inside:avoid}
.bars caption{text-align:left;font-weight:600;border-bottom:1px solid var(--faint);caption-side:top;color:inherit;
padding:0}
.bars thead th{color:var(--soft);font-weight:400;font-size:.8rem}
.bars thead th:nth-child(2){text-align:right}
.bars small{color:var(--soft)}.bars th small{display:block}
.bars svg{width:100%;height:1.15rem;display:block}
.bars rect{fill:var(--accent);opacity:.45}
.bars path{fill:none;vector-effect:non-scaling-stroke}
.bars .scale{stroke:var(--faint);stroke-width:2}
.bars .zero{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 2}
.bars .whole{stroke:var(--accent);stroke-width:2}
.bars .band{stroke:var(--accent);stroke-width:7;opacity:.4}
.bars .before{stroke:currentColor;stroke-width:2}
.bars .point{stroke:var(--point);stroke-width:3}
.shares{width:100%;height:1.6rem;display:block;background:var(--tint);border-radius:.2rem}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.5rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;border:1px solid var(--soft)}
rect.part0{fill:var(--accent)}i.part0{background:var(--accent)}
rect.part1{fill:var(--tint)}i.part1{background:var(--tint)}
rect.part2{fill:var(--point)}i.part2{background:var(--point)}
.boxes{list-style:none;padding:0}.boxes li{padding-left:1.7rem;position:relative}
.boxes li::before{content:"";position:absolute;left:0;top:.25rem;width:.85rem;height:.85rem;
border:1.5px solid var(--soft)}
.sign{display:flex;flex-wrap:wrap;gap:2rem;margin-top:2.6rem}
.sign span{flex:1 1 9rem;border-top:1px solid var(--soft);color:var(--soft);font-size:.8rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--tint);padding:.8rem;border-radius:.3rem;font-size:.8rem;
line-height:1.4}
"""
_NARROW_RULES = """
.wide{display:none}.narrow{display:inline}
.bars .name,.set .bars .name{width:38%}.bars .value{width:32%}
.bars small{display:block}
.scroll td:first-child:not(.number){min-width:7rem}
"""
_PAGE_STYLE = (
    "body.discreet{margin:0 auto;padding:0 1rem 3rem;color:var(--ink);background:var(--paper)}"
    "html{background:#fff}body.discreet{--ink:#1b1b1f;--paper:#fff;--soft:#5c5c66;--faint:#dedee6;--tint:#f2f2f6;--accent:#0072b2;"
    "--point:#a34700;--good:#00664a;--bad:#a32a00}"
    "header{margin-top:1.6rem}h1{font-size:1.7rem;line-height:1.2;margin:.1rem 0 1rem;overflow-wrap:anywhere}"
    ".discreet .kind{margin:0;color:var(--soft);font-size:.85rem;letter-spacing:.06em;text-transform:uppercase}"
    "@media screen and (prefers-color-scheme:dark){html{color-scheme:dark;background:#17171b}"
    "body.discreet{--ink:#ececf1;"
    "--paper:#17171b;--soft:#b0b0bb;--faint:#3a3a44;--tint:#25252c;--accent:#56b4e9;--point:#f0a060;--good:#5fd0a8;"
    "--bad:#ff9a76}}"
    "@page{size:A4;margin:14mm}"
    "@media print{html{font-size:9.5pt}details,nav{display:none}"
    "body.discreet{font-size:1rem;line-height:1.35;padding:0;max-width:none}"
    ".discreet h2{margin:.9rem 0 .3rem;padding-top:.5rem;break-after:avoid}header{margin:0}"
    ".discreet tr,.discreet figure,.discreet .verdict,.discreet li{break-inside:avoid}"
    ".discreet .bars th,.discreet .bars td{padding-top:0;padding-bottom:0}.discreet .bars svg{height:.85rem}"
    ".discreet .set{columns:2}.discreet .one th small{display:inline;margin-left:.4rem}"
    ".discreet .set .bars .name{width:46%}.discreet .set .bars .value{width:20%}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}"
)


def _scoped(rules: str) -> str:
    """Restrict rules to elements inside one of the class ``discreet``."""
    parts = re.findall(r"([^{}]*)\{([^{}]*)\}", rules.replace("\n", ""))
    return "".join(
        ",".join(f".discreet {selector.strip()}".strip() for selector in selectors.split(",")) + f"{{{body}}}"
        for selectors, body in parts
    )


STYLE = (
    ".discreet{--soft:currentColor;--faint:rgba(128,128,128,.35);--tint:rgba(128,128,128,.14);--accent:#0072b2;"
    "--point:#d55e00;--good:currentColor;--bad:currentColor}"
    f"{_scoped(_RULES)}@media (max-width:40rem){{{_scoped(_NARROW_RULES)}}}"
)
