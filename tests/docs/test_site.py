"""The built site: every formula is there, every link is good, and a real browser shows every page as it should be.

`make docs` builds the site; where it is missing or older than its sources, it is built here.
"""

import contextlib
import functools
import html
import http.server
import importlib
import os
import re
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
STATES = ((1280, "light"), (390, "light"), (390, "dark"), (1280, "dark"))
SAMPLES = (
    "index.html",
    "first-model.html",
    "api/index.html",
    "api/PrivateLogisticRegression.html",
    "results/lasso.html",
    "decisions/0012-site.html",
    "proofs/index.html",
    "proofs/geometric-median.html",
    "gallery/index.html",
    "gallery/01-first-model.html",
)

pytest.importorskip("sphinx", reason="the site is built with Sphinx, which is not installed")


def is_current():
    """Whether the site was built after the last change of what it is made of."""
    mark = SITE / "objects.inv"
    inputs = [*SOURCES, *(DOCS / "_ext").glob("*.py"), *(DOCS / "_static").iterdir(), DOCS / "conf.py"]
    inputs += [*(DOCS / "gallery").iterdir(), *(DOCS / "benchmark").iterdir()]
    inputs += [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks" / "results").glob("*.md")]
    return mark.exists() and all(path.stat().st_mtime <= mark.stat().st_mtime for path in inputs)


@contextlib.contextmanager
def only_one():
    """Workers of one run build the site once."""
    SITE.parent.mkdir(exist_ok=True)
    with open(SITE.parent / ".lock", "w") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def site():
    """The folder of the built site; what did not change since the last build is not built again."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(SITE.parent / "doctrees"),
    ]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with only_one():
        if not is_current():
            subprocess.run(
                [*command, str(DOCS), str(SITE)], check=True, env={**os.environ, "PYTHONPATH": paths}
            )
    return SITE


class Page(HTMLParser):
    """The links, targets, formulas and resources of a page, and the links of its menus."""

    def __init__(self, path):
        super().__init__()
        self.links, self.targets, self.resources, self.formulas, self.menu = [], set(), [], [], []
        self._in_formula, self._in_menu = False, 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.targets |= {values[key] for key in ("id", "name") if values.get(key)}
        self._in_menu += tag == "nav"
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
            self.menu += [values["href"]] if self._in_menu else []
        elif tag in {"img", "script"} and values.get("src"):
            self.resources.append(values["src"])
        elif tag == "link" and values.get("href"):
            self.resources.append(values["href"])
        elif tag == "annotation":
            self._in_formula = True
            self.formulas.append("")

    def handle_endtag(self, tag):
        self._in_menu -= tag == "nav"
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
    assert "given" not in text.partition("</dt>")[0].rpartition("<dt")[2]
    assert "<strong>max_rows_per_group</strong>" in text


def test_the_privacy_section_of_a_docstring_is_shown(site):
    text = (site / "api" / "mechanisms.html").read_text(encoding="utf-8")
    assert re.search(r'<p class="rubric"[^>]*>Privacy</p>', text)
    text = (site / "api" / "Ledger.html").read_text(encoding="utf-8")
    assert "Privacy: all results whose charges were admitted" in text


def test_internal_links_are_good(pages, site):
    for path, page in pages.items():
        for link in [*page.links, *page.resources]:
            parts = urlsplit(link)
            assert not parts.netloc or parts.scheme == "mailto", f"{path}: another host, {link}"
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].targets, f"{path}: {link}"


def test_every_page_is_in_a_menu(pages, site):
    """Menus alone lead from the front page to all others, but to those that no menu of a site has."""
    front = site / "index.html"
    seen, ahead = {front}, [front]
    while ahead:
        path = ahead.pop()
        near = {(path.parent / unquote(urlsplit(link).path)).resolve() for link in pages[path].menu}
        new = (near & set(pages)) - seen
        seen |= new
        ahead += new
    left = {path.relative_to(site).as_posix() for path in set(pages) - seen}
    assert left <= {"genindex.html", "py-modindex.html", "search.html", "benchmark/index.html"}


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
def thorough(request, pages, site):
    """The pages that are shown in all states and read by axe-core.

    By day one of each kind; all with ``--every-case``.
    """
    names = sorted(path.relative_to(site).as_posix() for path in pages)
    return set(names if request.config.getoption("--every-case") else SAMPLES)


@pytest.fixture(scope="module")
def shown(request, pages, site):
    """The pages that are opened: by day one of each kind and every third; all with ``--every-case``."""
    all_of_them = request.config.getoption("--every-case")
    names = sorted(path.relative_to(site).as_posix() for path in pages)
    return [name for place, name in enumerate(names) if all_of_them or place % 3 == 0 or name in SAMPLES]


@pytest.mark.parametrize("half", [0, 1])
def test_a_browser_shows_every_page(half, shown, server, screen, thorough):
    """No message, no failed or foreign request, nothing wider than the screen, nothing inaccessible.

    A page is loaded once, then resized and recolored. axe-core must find nothing serious: all rules in the light,
    on a wide and on a narrow screen, and colors in the dark.
    """
    address, missing = server
    faults = []
    for name in shown[half::2]:
        screen.show(*STATES[0])
        screen.open(address + name)
        for width, scheme in STATES if name in thorough else STATES[::2]:
            faults += screen.faults(name, address, width, scheme)
            if name in thorough and scheme == "light":
                faults += screen.findings(f"{name}, {width}", ["wcag2a", "wcag2aa"])
        if name in thorough:
            faults += screen.findings(f"{name}, dark", ["color-contrast"])
        faults += screen.messages(name)
    assert not faults, "\n".join(faults)
    assert not missing


FOUND = """
const [wanted, done] = arguments;
function look(left) {  // results are added one by one
  const links = [...document.querySelectorAll("#search-results li > a")].map(link => link.href);
  const found = links.some(link => link.split(/[#?]/)[0] === wanted);
  return found || !left ? done([found, links]) : setTimeout(look, 50, left - 1);
}
look(400);
"""


@pytest.mark.parametrize(
    ("word", "page"), [("ledger", "ledger.html"), ("PrivateLasso", "api/PrivateLasso.html")]
)
def test_the_search_finds_pages_without_a_network(word, page, site, server, screen):
    """Served from this machine, and from a folder alone."""
    for address in (server[0], f"{site.as_uri()}/"):
        screen.open(f"{address}search.html?q={word}")
        found, links = screen.driver.execute_async_script(FOUND, address + page)
        assert found, links
