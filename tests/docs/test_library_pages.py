"""Every kind of page that the library writes, in a real browser: wide and narrow, light and dark, and on paper."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from benchmarks.attest.page import page as attestation_page
from benchmarks.papers.charts import bars, curves, dots, slopes
from discreet import (
    Ledger,
    PrivateAdditiveClassifier,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    card,
    describe,
    evaluate,
)
from discreet.audit.report import audit
from discreet.display.page import Page
from discreet.tables.cohort import CARE_SCHEMA, COHORT_SCHEMA, make_cohort
from discreet.tables.schema import Schema

pytest.importorskip("vl_convert", reason="charts need vl-convert")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, much noise

HOSTILE = "</script><img src=http://elsewhere.example/x>\u202e"
ABOUT = card.About(
    title="Readmission within a year",
    purpose="planning of follow-up calls, not decisions about single patients",
    data="discharged patients",
    period="2019 to 2021",
    owner="quality office",
    approval=f"ethics board {HOSTILE}",
)
FEW = Schema(
    {name: COHORT_SCHEMA.columns[name] for name in ("age", "ward", "diabetes")}, target=COHORT_SCHEMA.target
)


TOLD = {"subject": f"solver {HOSTILE}", "relation": "replace-one", "note": "", "passed": True, "caught": True}
ATTESTED = {
    "version": "0.2.0",
    "made": "2026-01-01T00:00",
    "python": "3.11",
    "commit": HOSTILE,
    "mode": "full",
    "claims": [{**TOLD, "epsilon": 1.0}],
    "replays": [{**TOLD, "ratio": 1.0}],
    "exact": [{**TOLD, "claimed": 1.0, "true": 0.99, "ratio": 0.99, "twin": 2.1}],
    "attacks": [{**TOLD, "claimed": 1.0, "pair": 1.0, "shown": 0.8, "half_noise": 1.5, "sound": True}],
    "outside": [{**TOLD, "tool": "a", "verdict": "agrees", "claimed": 1.0, "lowest": None, "highest": 1.0}],
    "lemmas": {"online.md#theorem-2": {"proves": ["x"], "tests": ["tests/t.py::t"]}},
    "proofs": {"online.md": "0" * 64},
    "tests": {"passed": 3, "failed": 0},
    "kills": {
        "passed": True,
        "kills": 5,
        "kinds": {"full disk": 5},
        "acknowledged": 4,
        "seconds": 1.0,
        **dict.fromkeys(("lost", "damaged", "beyond_cap"), 0),
    },
    "fuzz": {
        "passed": True,
        "cases": 7,
        "refused": {"models": 6},
        "accepted": {"rows": 1},
        "n_surprises": 0,
        "seconds": 1.0,
    },
    "wheel": {"identical": True, "builds": [{"name": "discreet.whl", "sha256": "0" * 64}]},
    "packages": {"numpy": "2"},
    "not_tested": ["the weather", f"{HOSTILE}"],
}


class Tags(HTMLParser):
    """The tags of a page, and where they lead."""

    def __init__(self, text):
        super().__init__()
        self.names, self.targets = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.targets += [value for name, value in attrs if name in {"src", "href", "xlink:href", "action"}]
        assert not any(name.startswith("on") for name, _ in attrs)


def charted():
    """A page of all kinds of charts."""
    page = Page("<All kinds of charts>")
    points = [
        {"x": 10.0**k, "y": 2.0 + k, "low": 1.0 + k, "high": 3.0 + k, "who": HOSTILE, "how": f"{k} times"}
        for k in range(3)
    ]
    page.chart(curves(points, x="x", y="y", band=("low", "high"), series="who"), "curves", name="curves")
    with page.side_by_side():
        page.chart(bars(points, category="who", value="y", group="how"), "bars")
        page.chart(dots(points, category="who", value="y", group="how", log=True), "dots")
    page.chart(slopes(points, x="x", y="y", series="who", theory="high"), "slopes")
    page.table(["a"] * 12, [["a long cell of a wide table"] * 12])
    page.notes("more", ["<line>"])
    assert set(page.pictures()) == {"curves"}
    return page


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """All pages by name."""
    folder = tmp_path_factory.mktemp("pages")
    people = make_cohort(4_000)
    X, y = COHORT_SCHEMA.encode(people)
    budget = Ledger(folder / "budget.ledger", 5.0, 1e-5)
    model = PrivateLogisticRegression(
        1.0, 1e-7, classes=["no", "yes"], feature_bound=COHORT_SCHEMA.feature_bound(), ledger=budget
    ).fit(X[:3000], y[:3000])
    found = evaluate(model, X[3000:], y[3000:], epsilon=1.0, delta=1e-7, ledger=budget)
    card.save(model, folder / "model.json", schema=COHORT_SCHEMA, about=ABOUT)
    several = PrivateLogisticRegression(1.0, 1e-7, classes=list(CARE_SCHEMA.classes))
    several.fit(*CARE_SCHEMA.encode(people))
    shapes = PrivateAdditiveClassifier(1.0, 1e-7, schema=FEW, classes=["no", "yes"]).fit(people, y)
    pages = {
        "card": lambda path: card.to_html(folder / "model.json", path, evaluation=found, ledger=budget),
        "card-bare": lambda path: card.to_html(several, path),
        "card-classes": lambda path: card.to_html(several, path, schema=CARE_SCHEMA),
        "card-shapes": lambda path: card.to_html(shapes, path),
        "statement": model.privacy_.to_html,
        "ledger": budget.to_html,
        "evaluation": found.to_html,
        "description": describe(people, FEW, epsilon=1.0, delta=1e-7, pairs=[("ward", "diabetes")]).to_html,
        "audit": audit(PrivateLinearSVC(1.0, 1e-2), runs=60, seed=0, with_twin=True).to_html,
        "charts": charted().write,
        "attestation": lambda path: path.write_text(attestation_page(ATTESTED), encoding="utf-8"),
    }
    for name, write in pages.items():
        write(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in pages}


def test_no_page_runs_a_script_or_names_a_server(written):
    for name, path in written.items():
        text = path.read_text(encoding="utf-8")
        assert "\u202e" not in text, name
        assert "default-src 'none'" in text, name
        tags = Tags(text)
        assert not tags.names & {"script", "img", "iframe", "link", "object", "image", "use"}, name
        assert all(target.startswith("#") for target in tags.targets), name
        assert not re.search(r"url\((?!#)|@import", text), name


def test_the_page_of_an_attestation_begins_with_its_verdict(written):
    assert "Nothing that was tried contradicts a promise" in written["attestation"].read_text(
        encoding="utf-8"
    )


def test_a_browser_shows_every_page_of_the_library(written, screen):
    """Two widths, light and dark: no message, no request, nothing wider than the screen, nothing inaccessible."""
    faults = []
    for name, path in written.items():
        screen.show(1280, "light")
        screen.open(path.as_uri())
        for width, scheme in ((1280, "light"), (390, "light"), (390, "dark"), (1280, "dark")):
            faults += screen.faults(f"library/{name}", path.as_uri(), width, scheme)
            if scheme == "light":
                faults += screen.findings(f"{name}, {width}", ["wcag2a", "wcag2aa"])
        faults += screen.findings(f"{name}, dark", ["color-contrast"])
        faults += screen.messages(name)
    assert not faults, "\n".join(faults)


def test_charts_of_a_page_have_two_sizes(written, screen):
    """One is shown at a time; what they cut off is cut at their own edges, not at those of a hidden chart."""
    seen = 'return [...document.querySelectorAll(".chart svg")].filter(one => one.getBoundingClientRect().width > 0)'
    screen.open(written["charts"].as_uri())
    for width in (1280, 390):
        screen.show(width, "light")
        widths = screen.driver.execute_script(f"{seen}.map(one => one.getBoundingClientRect().width)")
        assert len(widths) == 4
        assert max(widths) <= width
    text = written["charts"].read_text(encoding="utf-8")
    marks = re.findall(r' id="([^"]+)"', text)
    assert len(marks) == len(set(marks))


def test_a_card_prints_on_two_pages(written, screen):
    screen.show(1280, "light")
    for name in ("card", "card-classes"):
        screen.open(written[name].as_uri())
        made = screen.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
        pages = re.findall(rb"/Type\s*/Page\b(?!s)", base64.b64decode(made["data"]))
        assert len(pages) == 2, name


def test_a_card_shows_what_was_declared_and_what_was_not(written):
    declared, bare = (written[name].read_text(encoding="utf-8") for name in ("card", "card-bare"))
    for text in (ABOUT.purpose, ABOUT.data, ABOUT.period, ABOUT.owner):
        assert text in declared
    assert bare.count("not recorded") >= 6
    assert "no evaluation was attached" in bare
    assert "charge 1 of this ledger" in declared
    assert np.isfinite(float(re.search(r"changes the odds by a factor of at most (\d+\.?\d*)", declared)[1]))
