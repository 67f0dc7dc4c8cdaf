"""Names of columns cannot change what a page does or shows."""

import json

import pytest

from discreet.display.charts import Page, bars

HOSTILE = ["<!--<script>", "</script><img src=x onerror=alert(1)>", "a\u202eb\x1b[8m"]


def test_names_are_data_inside_the_script():
    """Neither "</script" nor "<!--<script" reaches the parser: the first ends a script, the second keeps it open."""
    pytest.importorskip("vl_convert")
    records = [{"feature": name, "of": "x", "coefficient": 1.0} for name in HOSTILE]
    spec = bars(records, category="feature", value="coefficient", group="of")
    page = Page("names")
    page.chart(spec, HOSTILE[0])
    text = page.html().split("const specs = ")[1]
    specs, end = json.JSONDecoder().raw_decode(text)
    assert specs == json.loads(json.dumps([spec]))
    assert not {"<", "\u202e", "\x1b"} & set(text[:end])


def test_names_are_text_outside_the_script():
    page = Page(HOSTILE[1])
    for name in HOSTILE:
        page.heading(name)
        page.text(name)
        page.preformatted(name)
        page.table((name,), [(name,)])
    text = page.html()
    assert not {"\u202e", "\x1b"} & set(text)
    assert "<!--" not in text
    assert "<img" not in text
    assert text.count("<script>") == 1
