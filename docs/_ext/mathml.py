"""Typeset formulas as MathML when the site is built: no script, no font, no other server.

The LaTeX source stays in the page as an annotation, which is not shown: it can be searched, copied and compared.
Browsers break no line within a formula, so one that stands in a line is written in pieces, which begin at relations
and, where a piece is long, at sums. A line may end between pieces. Short formulas are not cut.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
BAR = '<mo stretchy="false">&#x0007C;</mo>'
RELATIONS = set("=<>≤≥≠≈∈∼→↦⇔∝⪯⪰≺≻:")
SUMS = set("+−-")
LONG = 12  # elements of a piece that may end at a sum
SHORT = 12  # letters of a formula that is not cut

ElementTree.register_namespace("", NAMESPACE)


def converted(latex: str, display: str) -> str:
    """The MathML of a formula."""
    # Bars enclose, they do not relate: no space around them. Where they relate the source has \mid.
    # A comma in braces separates thousands and is not followed by a space.
    latex = latex.replace("{,}", r"\text{,}")
    return convert(latex, display=display).replace(BAR, BAR.replace("<mo", '<mo lspace="0" rspace="0"'))


def annotated(element: str, latex: str) -> str:
    """The element with its source as an annotation."""
    opening, content, closing = re.fullmatch(r"(<math.*?>)(.*)(</math>)", element, re.DOTALL).groups()  # type: ignore[union-attr]
    source = f'<annotation encoding="application/x-tex">{html.escape(latex)}</annotation>'
    return f"{opening}<semantics><mrow>{content}</mrow>{source}</semantics>{closing}"


def pieces(element: str) -> list[str]:
    """The element cut at relations and sums that are in no bracket."""
    if len(html.unescape(re.sub(r"<[^>]*>", "", element))) <= SHORT:
        return [element]
    row = ElementTree.fromstring(element).find(f"{{{NAMESPACE}}}mrow")
    groups: list[list[Any]] = [[]]
    depth, within = 0, False
    for child in row if row is not None else ():
        sign = (child.text or "") if child.tag.endswith("}mo") or child.tag.endswith("}mi") else ""
        base = child[0] if len(child) and child.tag.endswith(("}msub", "}msup", "}msubsup")) else child
        mark = base.text or ""
        depth += (mark in "([{⟨⌊⌈⟦" and mark != "") - (mark in ")]}⟩⌋⌉⟧" and mark != "")
        within ^= mark == "|"
        free = depth == 0 and not within and bool(groups[-1])
        if free and (sign in RELATIONS or (sign in SUMS and len(groups[-1]) >= LONG)):
            child.set("form", "infix")
            groups.append([])
        groups[-1].append(child)
    made = []
    for group in groups:
        text = "".join(ElementTree.tostring(child, encoding="unicode") for child in group)
        text = text.replace(f' xmlns="{NAMESPACE}"', "")
        made.append(f'<math xmlns="{NAMESPACE}" display="inline"><mrow>{text}</mrow></math>')
    return made


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    latex = node.astext()
    first, *others = pieces(converted(latex, "inline"))
    writer.body.append("<wbr>".join([annotated(first, latex), *others]))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own line; a narrow screen scrolls it, not the page."""
    latex = node.astext()
    shown = annotated(converted(latex, "block"), latex)
    writer.body.append(f'<div class="formula" tabindex="0" role="group" aria-label="formula">{shown}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
