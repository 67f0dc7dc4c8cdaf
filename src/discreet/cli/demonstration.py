"""A demonstration on synthetic people: accuracy with and without privacy, and a budget that runs out."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.display.console import progress, say, table
from discreet.estimators.classifiers import PrivateLogisticRegression
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger
from discreet.tables.cohort import COHORT_SCHEMA, COHORT_SEED, make_cohort

EPSILONS = (0.05, 0.1, 0.5, 1.0)
STATED = 1.0  # the model whose statement is printed
CAP_EPSILON, CAP_DELTA = 1.2, 1e-6
TOO_MUCH = 1.0
FEWEST = 2_000  # with fewer people delta = 1 / n^2 is so large that the models do not fit under the cap
LEDGER = "demo.ledger"
KEPT = ("cohort.parquet", "cohort.toml", "new.csv")
COMMANDS = """\
discreet ledger create budget.db --epsilon 3 --delta 1e-6
discreet plan --schema cohort.toml --rows {rows} --epsilon 1
discreet fit cohort.parquet --schema cohort.toml --epsilon 1 --ledger budget.db --output model.json
discreet verify model.json --ledger budget.db
discreet predict model.json new.csv --output predictions.csv
"""


@dataclass(frozen=True)
class Split:
    """Bounded rows and labels, to learn from and to test on."""

    train_rows: NDArray[np.float64]
    train_labels: NDArray[Any]
    test_rows: NDArray[np.float64]
    test_labels: NDArray[Any]


def run(folder: Path, n_people: int = 50_000, *, keep: bool = False) -> None:
    """Make a synthetic cohort, fit, charge, state, and run out of budget; files go to ``folder``.

    Parameters
    ----------
    folder : existing folder, without files of an earlier demonstration.
    n_people : size of the cohort, at least 2,000.
    keep : whether the folder stays; if so, list its files.

    Privacy
    -------
    The fits are truly private and charged to a real ledger. The accuracies are computed on held-out people without
    noise, which is acceptable only because the people are synthetic.
    """
    if n_people < FEWEST:
        raise ValueError(f"the demonstration needs at least {FEWEST} people for its budget, got {n_people}")
    for name in (LEDGER, *KEPT):
        if (folder / name).exists():
            raise FileExistsError(f"{str(folder / name)!r} exists; choose an empty folder")
    ledger = Ledger(folder / LEDGER, CAP_EPSILON, CAP_DELTA)
    with progress("inventing a cohort", 3 + len(EPSILONS)) as done:
        cohort = make_cohort(n_people)
        done("encoding by public domains")
        split = _split(cohort)
        done("fitting without privacy")
        reference = _nonprivate(split)
        models, rows = {}, [("always the more common label", "", _percent(_majority(split)))]
        for epsilon in EPSILONS:
            done(f"fitting with epsilon {epsilon:g}")
            model = models[epsilon] = _private(epsilon, ledger).fit(split.train_rows, split.train_labels)
            accuracy = model.score(split.test_rows, split.test_labels)
            rows.append(("private logistic regression", f"{epsilon:g}", _percent(accuracy)))
        rows.append(("scikit-learn, without privacy", "", _percent(reference)))
        done("done")
    sizes = f"{len(split.train_labels)} people to learn from, {len(split.test_labels)} to test on"
    title = f"Readmission in a synthetic cohort: {sizes}"
    table(title, ("model", "epsilon", "accuracy"), rows)
    say()
    say(models[STATED].privacy_)
    say()
    _show_ledger(ledger)
    _overspend(ledger, split)
    if keep:
        _keep(folder, cohort)


def _split(cohort: Any) -> Split:
    """Train on the first four fifths; people are drawn independently, so no shuffle is needed."""
    rows, labels = COHORT_SCHEMA.encode(cohort)
    n_train = len(rows) * 4 // 5
    return Split(rows[:n_train], labels[:n_train], rows[n_train:], labels[n_train:])


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.1f}%"


def _majority(split: Split) -> float:
    values, counts = np.unique(split.train_labels, return_counts=True)
    return float(np.mean(split.test_labels == values[np.argmax(counts)]))


def _nonprivate(split: Split) -> float:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=2000).fit(split.train_rows, split.train_labels)
    return float(model.score(split.test_rows, split.test_labels))


def _private(epsilon: float, ledger: Ledger) -> PrivateLogisticRegression:
    """Return the model: everything is declared, nothing is tuned."""
    return PrivateLogisticRegression(
        epsilon=epsilon,
        feature_bound=COHORT_SCHEMA.feature_bound(),
        classes=COHORT_SCHEMA.classes.tolist(),
        ledger=ledger,
    )


def _show_ledger(ledger: Ledger) -> None:
    charges = [
        (charge.sequence, charge.label, f"{ledger.price(charge.event):.3g}") for charge in ledger.history()
    ]
    title = f"Ledger {ledger.path.name}: cap epsilon {ledger.epsilon:g} at delta {ledger.delta:g}"
    table(title, ("charge", "label", f"epsilon alone, at delta {ledger.delta:g}"), charges)
    say(f"Spent: {ledger.spent()}", folded=True)
    say(f"Remaining: {ledger.remaining()}", folded=True)


def _overspend(ledger: Ledger, split: Split) -> None:
    """Request more than is left; the fit is refused before the data is touched."""
    say(f"\nOne more fit, with epsilon {TOO_MUCH:g}:")
    try:
        _private(TOO_MUCH, ledger).fit(split.train_rows, split.train_labels)
    except BudgetExceeded as error:
        say(f"Refused: {error}", folded=True)
    else:
        say("Admitted: with this many people delta is so small that the cap allows one more fit.")


def _keep(folder: Path, cohort: Any) -> None:
    """Write the files that the other commands need, and list these commands."""
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    table_file, schema_file, new_file = (folder / name for name in KEPT)
    parquet.write_table(cohort, table_file)
    COHORT_SCHEMA.to_file(schema_file)
    others = make_cohort(1_000, seed=COHORT_SEED + 1)  # whom no model has seen
    csv.write_csv(others.select(list(COHORT_SCHEMA.columns)), new_file)
    say(f"\nKept in {folder}: {', '.join(KEPT)} and {LEDGER}. To try the other commands there:\n")
    say(textwrap.indent(f"cd {shlex.quote(str(folder))}\n{COMMANDS.format(rows=cohort.num_rows)}", "  "))
