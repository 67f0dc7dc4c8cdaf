"""The built site: every formula is there, every link is good, and a real browser shows every page as it should be.

`make docs` builds the site; where it is missing or older than its sources, it is built here.
"""

import functools
import html
import http.server
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
GENERATED = {"api", "results"}
SOURCES = sorted(path for path in DOCS.rglob("*.md") if not GENERATED & set(path.relative_to(DOCS).parts))
PROOFS = [path for path in SOURCES if path.parent.name == "proofs"]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WIDTHS = (1280, 390)

pytest.importorskip("sphinx", reason="the site is built with Sphinx, which is not installed")


def is_current():
    """Whether the site was built after the last change of what it is made of."""
    mark = SITE / "objects.inv"
    inputs = [*SOURCES, *(DOCS / "_ext").glob("*.py"), *(DOCS / "_static").iterdir(), DOCS / "conf.py"]
    inputs += (DOCS / "gallery").iterdir()
    inputs += [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks" / "results").glob("*.md")]
    return mark.exists() and all(path.stat().st_mtime <= mark.stat().st_mtime for path in inputs)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    if is_current():
        return SITE
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(folder / "doctrees")]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [*command, str(DOCS), str(folder / "html")], check=True, env={**os.environ, "PYTHONPATH": paths}
    )
    return folder / "html"


class Page(HTMLParser):
    """The links, targets, formulas and resources of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.targets, self.resources, self.formulas = [], set(), [], []
        self._in_formula = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.targets |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag in {"img", "script"} and values.get("src"):
            self.resources.append(values["src"])
        elif tag == "link" and values.get("href"):
            self.resources.append(values["href"])
        elif tag == "annotation":
            self._in_formula = True
            self.formulas.append("")

    def handle_endtag(self, tag):
        self._in_formula = self._in_formula and tag != "annotation"

    def handle_data(self, data):
        if self._in_formula:
            self.formulas[-1] += data


@pytest.fixture(scope="module")
def pages(site):
    """All pages by their path."""
    return {
        path: Page(path)
        for path in sorted(site.rglob("*.html"))
        if path.parent.name != "_static" and "_downloads" not in path.parts
    }


def parsed(path):
    """The inline tokens of a source, as MyST reads it."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    parser = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, allow_labels=False)
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    return [child for token in tokens for child in (token.children or [token])]


def squeezed(formula):
    return " ".join(formula.split())


def formulas(text):
    """The formulas of a source between dollars, found without a Markdown parser."""
    text = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        squeezed(block or line) for block, line in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.DOTALL)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_formula_is_on_its_page(path, site):
    page = Page(site / path.relative_to(DOCS).with_suffix(".html"))
    assert [squeezed(formula) for formula in page.formulas] == formulas(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: path.name)
def test_markdown_takes_nothing_from_a_proof(path):
    """No star or underscore of a formula is read as emphasis, and no inner product as a tag."""
    for token in parsed(path):
        assert token.type not in {"html_inline", "html_block"}, token.content
        assert token.type != "code_block", f"a formula in a block of code: {token.content}"
        if token.type in {"em_open", "strong_open"}:
            assert "_" not in token.markup, path
        if token.type == "text":
            assert "*" not in token.content, token.content


def test_every_public_name_has_a_page(site):
    from discreet._api import HOMES

    for name in HOMES:
        text = html.unescape((site / "api" / f"{name}.html").read_text(encoding="utf-8"))
        assert f'id="discreet.{name}"' in text
    for package in ("solvers", "sets", "losses"):
        names = importlib.import_module(f"discreet.{package}")
        text = (site / "api" / f"{package}.html").read_text(encoding="utf-8")
        for name in set(names.__all__) - {"Array", *HOMES}:
            assert f'id="discreet.{package}.{name}"' in text, name


def test_parameters_that_are_composed_at_run_time_are_shown(site):
    text = (site / "api" / "PrivateLogisticRegression.html").read_text(encoding="utf-8")
    assert "{parameters}" not in text
    assert "<strong>max_rows_per_group</strong>" in text


def test_the_privacy_section_of_a_docstring_is_shown(site):
    text = (site / "api" / "Ledger.html").read_text(encoding="utf-8")
    assert re.search(r'<p class="rubric"[^>]*>Privacy</p>', text)


def test_internal_links_are_good(pages, site):
    for path, page in pages.items():
        for link in [*page.links, *page.resources]:
            parts = urlsplit(link)
            assert not parts.netloc or parts.scheme == "mailto", f"{path}: another host, {link}"
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].targets, f"{path}: {link}"


def test_every_page_can_be_reached_from_the_navigation(pages, site):
    front = site / "index.html"
    seen, ahead = {front}, [front]
    while ahead:
        path = ahead.pop()
        near = {(path.parent / unquote(urlsplit(link).path)).resolve() for link in pages[path].links}
        new = (near & set(pages)) - seen
        seen |= new
        ahead += new
    assert {path.name for path in set(pages) - seen} <= {"genindex.html", "py-modindex.html", "search.html"}


@pytest.fixture(scope="module")
def server(site):
    """The address of a server of the site on this machine, and what it could not give."""

    missing = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def log_error(self, form, *args):
            missing.append(f"{self.path}: {form % args}")

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", missing
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A Chromium that keeps its messages."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "hide-scrollbars",
        f"user-data-dir={profile}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


def resized(driver, width):
    """Make the screen of the browser this wide."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def colored(driver, scheme):
    """Prefer light or dark pages."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def kept(driver, name, width, scheme):
    """Write a picture of the page to build/screenshots, if DISCREET_SCREENSHOTS is set."""
    if "DISCREET_SCREENSHOTS" in os.environ:
        folder = ROOT / "build" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(folder / f"{name.replace('/', '-')}-{width}-{scheme}.png"))


STATE = """
const [address, scheme, done] = arguments;
const root = document.documentElement;
function state(left) {  // the theme follows the preference with the next event
  if (root.dataset.theme !== scheme && left) return setTimeout(state, 25, left - 1);
  const asked = performance.getEntriesByType("resource").map(entry => entry.name);
  const foreign = asked.filter(url => new URL(url).host && !url.startsWith(address));
  done([root.scrollWidth, root.dataset.theme, foreign]);
}
state(200);
"""


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="no Chromium with its driver on this machine")
def test_a_browser_shows_every_page(pages, site, server, browser):
    """Two widths, light and dark: no message, no failed or foreign request, nothing wider than the screen."""
    address, missing = server
    faults = []
    for path in pages:
        name = path.relative_to(site).as_posix()
        resized(browser, WIDTHS[0])
        colored(browser, "light")
        browser.get(address + name)
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light")):
            resized(browser, width)
            colored(browser, scheme)
            found, theme, foreign = browser.execute_async_script(STATE, address, scheme)
            if found > width:
                faults.append(f"{name}: {found} pixels wide on a screen of {width}, {scheme}")
            if theme != scheme:
                faults.append(f"{name}: {theme} where {scheme} is preferred")
            kept(browser, name, width, scheme)
        faults += [f"{name}: {url}" for url in foreign]
        messages = [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]
        faults += [f"{name}: {entry['message']}" for entry in messages]
    assert not faults, "\n".join(faults)
    assert not missing


def representative(pages, site):
    """Every page that people wrote, and of the proofs and of what programs write one of each kind."""
    kinds = ("api/", "results/", "decisions/", "benchmark/", "proofs/")
    samples = {"api/index.html", "api/PrivateLogisticRegression.html", "results/lasso.html"}
    samples |= {"decisions/0012-site.html", "proofs/index.html", "proofs/geometric-median.html"}
    names = {path.relative_to(site).as_posix() for path in pages} - {"genindex.html", "py-modindex.html"}
    return sorted({name for name in names if not name.startswith(kinds)} | samples & names)


# Formulas have hundreds of elements, each of the color of its text, which is checked.
FINDINGS = """
const [rules, done] = arguments;
axe.run({exclude: [["math"]]}, {runOnly: rules, resultTypes: ["violations"]}).then(found => done(found.violations
  .filter(rule => ["serious", "critical"].includes(rule.impact))
  .map(rule => rule.id + ": " + rule.nodes.slice(0, 3).map(node => node.target.join(" ")).join(", "))));
"""


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="no Chromium with its driver on this machine")
def test_pages_are_accessible(pages, site, server, browser):
    """axe-core finds nothing serious: all rules on a wide light screen, colors also in the dark."""
    package = pytest.importorskip("axe_core_python", reason="axe-core is not installed")
    script = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    resized(browser, WIDTHS[0])
    faults = []
    for name in representative(pages, site):
        colored(browser, "light")
        browser.get(server[0] + name)
        browser.execute_script(script)
        for scheme, rules in (("light", ["wcag2a", "wcag2aa"]), ("dark", ["color-contrast"])):
            colored(browser, scheme)
            faults += [
                f"{name}, {scheme}: {found}" for found in browser.execute_async_script(FINDINGS, rules)
            ]
    assert not faults, "\n".join(faults)
