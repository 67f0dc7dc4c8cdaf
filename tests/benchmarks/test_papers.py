"""The benchmark runs, resumes, survives a crash, and says what it could not run."""

import json
import re
from dataclasses import replace

import pytest

from benchmarks.papers import report, runner
from benchmarks.papers.__main__ import main
from benchmarks.papers.cells import cells
from benchmarks.papers.datasets import _industrial
from benchmarks.papers.fingerprints import FLOOR
from benchmarks.papers.huberization import excess
from benchmarks.papers.methods import METHODS, OURS
from benchmarks.papers.results import Results, Row
from benchmarks.papers.runs import Effort
from benchmarks.papers.standing import comparisons
from benchmarks.papers.tables import TABLES

QUICK = Effort(quick=True)
TESTED = [
    "logistic-low",
    "logistic-curves",
    "sampling",
    "recommenders",
    "rates",
    "queries",
    "fingerprinting",
    "huberization",
    "audit",
]


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("DISCREET_DATA", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A quick run without any real data."""
    path = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("DISCREET_DATA", raising=False)
        runner.run(TESTED, path, effort=QUICK)
    return path


def test_every_method_has_a_row_with_its_accounted_promise(folder):
    rows = [row for row in Results(folder).rows() if row.table == "logistic-low" and row.status == "ok"]
    assert {row.method for row in rows} == set(OURS)  # other libraries are never part of a quick run
    for row in rows:
        assert row.versions["discreet"]
        assert 0 <= row.value <= 100
        assert row.quick
        assert row.memory > 0
        if row.method == "non-private":
            assert row.promise is None
        else:
            assert 0 < row.promise["epsilon"] <= row.epsilon * (1 + 1e-9)
            assert row.promise["neighboring"] == "replace-one"


def test_every_row_says_where_its_settings_come_from(folder):
    known = {"defaults", "non-private", "printed calibration", "fixed in advance", "peer's defaults"}
    assert {row.protocol for row in Results(folder).rows()} <= known


def test_missing_data_is_a_row_that_says_so(folder):
    missing = [row for row in Results(folder).rows() if row.dataset == "adult"]
    assert missing
    assert all(row.value is None and "set DISCREET_DATA" in row.status for row in missing)


def test_a_run_goes_on_where_it_stopped(folder, tmp_path):
    lines = (folder / "results.jsonl").read_text().splitlines()
    keep = [
        line for line in lines if json.loads(line)["table"] == "logistic-low" and json.loads(line)["value"]
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(keep[:-2]) + "\n" + keep[-2][:40])  # cut by a crash
    made = runner.run(["logistic-low"], tmp_path, effort=QUICK)
    again = {json.loads(line)["method"] for line in keep[-2:]}
    assert {row.method for row in made if row.status == "ok"} == again
    kept = [row for row in Results(tmp_path).rows() if row.status == "ok"]
    assert {row.key for row in kept} == {Row(**json.loads(line)).key for line in keep}


def test_rows_are_made_again_when_asked_and_the_newest_counts(tmp_path):
    first = runner.run(["queries"], tmp_path, effort=QUICK)
    assert runner.run(["queries"], tmp_path, effort=QUICK) == []
    again = runner.run(["queries"], tmp_path, effort=replace(QUICK, again=True))
    assert [row.key for row in again] == [row.key for row in first]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2 * len(first)
    assert {row.key: row.seconds for row in Results(tmp_path).rows()} == {
        row.key: row.seconds for row in again
    }


@pytest.mark.nightly
def test_tables_run_side_by_side_in_one_file(tmp_path):
    made = runner.run_side_by_side(["queries", "fingerprinting"], tmp_path, 2, effort=QUICK)
    assert {row.table for row in made} == {"queries", "fingerprinting"}
    assert {row.key for row in Results(tmp_path).rows()} == {row.key for row in made}
    assert all(row.seconds >= 0 for row in made)


def test_no_private_method_beats_the_fingerprinting_floor(folder):
    rows = {row.method: row for row in Results(folder).rows() if row.table == "fingerprinting"}
    assert rows.pop("consensus of the code, no privacy").value < FLOOR  # easy without privacy
    assert rows
    assert all(row.value >= FLOOR for row in rows.values())


def test_quick_rows_never_count_as_full_ones(folder):
    done = {row.key for row in Results(folder).rows()}
    planned = next(iter(TABLES["logistic-low"].runs(Effort()))).row
    assert planned.key not in done


def test_repeats_can_be_limited():
    seeds = {planned.row.seed for planned in TABLES["rates"].runs(Effort(repeats=2))}
    assert seeds == {0, 1}
    assert Effort(repeats=20).seeds(3) == range(3)


def test_data_sets_can_be_chosen():
    table = TABLES["logistic-low"]
    rows = [planned.row for planned in table.runs(Effort(repeats=1, datasets=["synthetic-L"]))]
    assert {row.dataset for row in rows} == {"synthetic-L"}
    assert {row.method for row in rows} == {*OURS, *table.peers}
    alone = [
        planned.row.method for planned in table.runs(Effort(repeats=1, peers=False, datasets=["synthetic-L"]))
    ]
    assert alone == list(OURS)
    few = Effort(repeats=1, datasets=["synthetic-L"], methods=["auto", "psgd"])
    assert [planned.row.method for planned in table.runs(few)] == ["auto", "psgd"]


def test_the_page_holds_every_figure_and_needs_no_network(folder):
    text = report.write(folder).read_text()
    for row in Results(folder).rows():
        if row.table == "logistic-low" and row.value is not None:
            assert f"{row.value:.1f}" in text
    assert "printed: H-F AMP" in text
    assert "no data: set DISCREET_DATA" in text
    assert "Where the settings come from" in text
    assert not re.search(r"""(src|href)=["']https?:""", text)
    assert len(text.encode()) < 2_000_000


def test_the_pictures_are_drawn_beside_the_page(folder, tmp_path):
    page = report.write(folder, tmp_path / "page")
    pictures = {path.stem for path in page.parent.glob("*.svg")}
    assert {"logistic-low-cost", "logistic-low-time", "logistic-curves", "recommenders", "rates"} <= pictures
    assert all("<svg" in path.read_text() for path in page.parent.glob("*.svg"))


def test_means_and_intervals():
    rows = [Row("t", "d", "auto", 1.0, seed, value=value) for seed, value in enumerate((80.0, 82.0, 84.0))]
    (cell,) = cells(rows)
    assert cell.mean == 82.0
    # Student's t with 2 degrees of freedom
    assert cell.half_width == pytest.approx(4.302653 * 2 / 3**0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((79.5, 79.6, 79.4), "ahead"), ((70.0, 88.0), "too close to tell"), ((70.0,), "BEHIND")],
)
def test_the_page_says_where_we_are_not_ahead(values, verdict):
    """The dissertation's best on Adult is 79.1."""
    rows = [
        Row("logistic-low", "adult", "auto", 0.1, seed, "adult", value=value)
        for seed, value in enumerate(values)
    ]
    (found,) = comparisons(rows)
    assert (found.printed, found.column, found.verdict) == (79.1, "AMP", verdict)
    assert ("Not ahead: adult" in report.page(rows).html()) == (verdict != "ahead")


def test_a_stand_in_is_not_compared_with_the_printed_figure():
    rows = [Row("logistic-high", "gisette", "auto", 0.1, 0, "gisette_valid1k", value=99.0)]
    assert comparisons(rows) == []
    assert "gisette_valid1k stands in for gisette" in report.page(rows).html()


def test_every_method_of_the_tables_exists():
    for table in TABLES.values():
        for name in getattr(table, "peers", ()):
            assert name in METHODS


def test_commands(tmp_path, capsys):
    assert main(["list"]) == 0
    assert "Figure 4.4" in capsys.readouterr().out
    assert main(["nonsense", "--output", str(tmp_path)]) == 1
    assert "there is no table 'nonsense'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ending:
        main(["queries", "--repeats", "0", "--output", str(tmp_path)])
    assert ending.value.code == 2
    assert "--repeats" in capsys.readouterr().err
    assert main(["report", "--output", str(tmp_path)]) == 1
    assert "there are no results" in capsys.readouterr().err
    assert main(["queries", "--quick", "--output", str(tmp_path)]) == 0
    assert "3 new results" in capsys.readouterr().out


def test_smoothing_the_hinge_costs_the_same_share_whatever_the_number_of_rows(folder):
    # The minimizer of the smoothed loss is 1 + h / 2, so the excess is h / 10; noise is small beside that for h = 0.5.
    assert excess(1.0) == pytest.approx(0.0)
    assert excess(1.25) == pytest.approx(0.05)
    rows = {(row.method, row.x): row.value for row in Results(folder).rows() if row.table == "huberization"}
    assert rows["smoothed over 0.5, objective perturbation", 4000.0] == pytest.approx(0.05, abs=0.01)
    assert rows["the hinge, mirror descent", 4000.0] < 0.01


def test_industrial_shapes_are_generated_and_compared_with_no_printed_figure(folder):
    X, y = _industrial(1000, 23, 3.2)
    assert X.shape == (1000, 23)
    assert 0.3 < y.mean() < 0.7
    assert not [one for one in comparisons(Results(folder).rows()) if "industrial" in one.what]
