"""Names of columns cannot change what a page does or shows, and numbers are drawn where they are."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks.papers.charts import bars
from discreet.display.charts import svg
from discreet.display.page import Bar, Page

HOSTILE = ["<!--<script>", "</script><img src=x onerror=alert(1)>", "a\u202eb\x1b[8m"]


def test_names_are_text_in_a_chart():
    """Neither markup nor a mark of direction reaches the page, in text or in labels for screen readers."""
    pytest.importorskip("vl_convert")
    records = [{"feature": name, "of": "x", "coefficient": 1.0} for name in HOSTILE]
    drawn = svg(bars(records, category="feature", value="coefficient", group="of"), 1200, "m")
    tags = {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(drawn).iter()}
    assert tags <= {"svg", "g", "path", "text", "line", "rect", "defs", "clipPath", "title"}
    assert not {"\u202e", "\x1b"} & set(drawn)
    assert "onerror" in drawn  # as text


def test_a_bar_says_its_number_under_the_pointer():
    """Titles need no script; pictures for documents, where nothing is under a pointer, have none."""
    pytest.importorskip("vl_convert")
    spec = bars([{"of": "<age>", "x": 2.5, "by": "all"}], category="of", value="x", group="by")
    drawn = ElementTree.fromstring(svg(spec, 400, "m"))
    (title,) = (one.text for one in drawn.iter() if one.tag.endswith("title"))
    assert "2.5" in title
    assert "<age>" in title
    assert "<title>" not in svg(spec, 400, "", background="white")


def test_names_are_text_on_a_page():
    page = Page(HOSTILE[1], HOSTILE[1])
    for name in HOSTILE:
        page.heading(name)
        page.text(name)
        page.verdict(name, name)
        page.preformatted(name)
        page.items([name])
        page.notes(name, [name])
        page.to_sign([name], [name])
        page.facts({name: name})
        page.table((name,), [(name,)])
        page.bars({name: [Bar(name, 1.0, name, name, note=name)]}, (name, name, name))
        page.shares([(name, 0.5, name)])
    for text in (page.html(), page.fragment()):
        assert not {"\u202e", "\x1b"} & set(text)
        assert "<!--" not in text
        assert "<img" not in text
        assert "<script" not in text


def drawn(bar, **options):
    """What one bar draws, by class: all numbers of its paths and rectangles."""
    page = Page("one")
    page.bars({"": [bar]}, **options)
    text = page.fragment()
    shapes = {
        kind: [float(number) for number in re.findall(r"[\d.]+", path)]
        for kind, path in re.findall(r'<path class="(\w+)" d="([^"]+)"', text)
    }
    for found in re.findall(r'<rect x="([\d.]+)" y="5" width="([\d.]+)"', text):
        shapes["rect"] = [float(number) for number in found]
    return shapes


def test_a_bar_begins_at_the_origin_and_ends_at_its_number():
    shapes = drawn(Bar("x", 0.5, "0.5", before=0.25), ends=(0.0, 1.0))
    assert shapes["zero"][0] == pytest.approx(2.0)
    assert shapes["rect"] == pytest.approx([2.0, 48.0])
    assert shapes["before"][0] == pytest.approx(26.0)
    assert shapes["point"][0] == pytest.approx(50.0)
    left = drawn(Bar("x", -1.0, "-1"), ends=(-1.0, 1.0))
    assert left["rect"] == pytest.approx([2.0, 48.0])


def test_an_interval_is_drawn_to_the_edge_where_it_has_no_end():
    bar = Bar("x", 0.5, "0.5", low=float("-inf"), high=0.75, band=0.1)
    shapes = drawn(bar, ends=(0.0, 1.0))
    assert shapes["whole"][0] == pytest.approx(2.0)
    assert shapes["whole"][2] == pytest.approx(74.0)
    assert shapes["band"][::2] == pytest.approx([2 + 96 * 0.4, 2 + 96 * 0.6])


def test_a_scale_holds_everything_and_unknown_numbers_draw_nothing():
    page = Page("two")
    page.bars({"": [Bar("a", 3.0, "3"), Bar("b", float("nan"), "unknown")]})
    text = page.fragment()
    assert text.count('class="point"') == 1
    assert 'd="M98.00 3V17"' in text
    assert "unknown" in text
