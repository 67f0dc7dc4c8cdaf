"""A real browser draws every chart of a page, in both modes and at the width of a phone."""

import re
import shutil
import subprocess

import pytest

from discreet.display.charts import Page, bars, curves, dots, intervals, slopes

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = Page("<All kinds of charts>")
    points = [
        {"x": 10.0**k, "y": 2.0 + k, "low": 1.0 + k, "high": 3.0 + k, "who": "a</script>b"} for k in range(3)
    ]
    page.chart(curves(points, x="x", y="y", band=("low", "high"), series="who"), "curves", name="curves")
    with page.side_by_side():
        page.chart(bars(points, category="who", value="y", group="x"), "bars")
        page.chart(dots(points, category="who", value="y", group="x", log=True), "dots")
    page.chart(slopes(points, x="x", y="y", series="who", theory="high"), "slopes")
    page.chart(intervals(points, name="x", value="y", low="low", high="high"), "intervals")
    page.table(["a"] * 12, [["a long cell of a wide table"] * 12])
    page.notes("more", ["<line>"])
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    assert set(page.pictures()) == {"curves"}
    return path


def drawn(page, *options):
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=20000",
            *options,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_draws_every_chart(page, width):
    found = drawn(page, f"--window-size={width},900")
    assert 'data-drawn="5"' in found
    assert len(re.findall(r'<svg[^>]* class="marks"', found)) == 5
    assert "&lt;All kinds of charts&gt;" in found
    assert 'data-mode="light"' in found


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_dark_mode_follows_the_system(page):
    found = drawn(page, "--blink-settings=preferredColorScheme=0")
    assert 'data-drawn="5"' in found
    assert 'data-mode="dark"' in found
