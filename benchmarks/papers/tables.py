"""The papers' tables and figures as things to run, with the figures they printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.papers.audits import Audits
from benchmarks.papers.datasets import MissingData, Split, available, load, splits
from benchmarks.papers.figures import PURE, SAMPLING, Perturbations, Queries
from benchmarks.papers.fingerprints import Fingerprints
from benchmarks.papers.huberization import Huberization
from benchmarks.papers.methods import METHODS, OURS, PEERS, Outcome, Task
from benchmarks.papers.peers import PeerFailed
from benchmarks.papers.rates import Rates
from benchmarks.papers.ratings import Recommenders
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run, Table, without_data


@dataclass(frozen=True)
class Classification:
    """Linear classifiers on several data sets: test accuracy of methods at given epsilons.

    Attributes
    ----------
    budgets : the epsilons of each data set.
    repeats : the number of splits of each data set.
    peers : other libraries, run unless the effort says otherwise.
    """

    name: str
    title: str
    task: Task
    budgets: Mapping[str, Sequence[float]]
    repeats: Mapping[str, int]
    methods: Sequence[str] = OURS
    peers: Sequence[str] = ()
    axis: str = ""
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Everything to run, data set by data set."""
        for dataset, epsilons in self.budgets.items():
            if not effort.wants(dataset) or (effort.quick and dataset not in _QUICK):
                continue
            used = available(dataset)
            try:
                load(used)
            except MissingData as error:
                yield without_data(Row(self.name, dataset, "", 0.0, 0, used, quick=effort.quick), error)
                continue
            for split in splits(used, effort.seeds(self.repeats[dataset]), effort.quick):
                yield from self._of_split(dataset, split, epsilons[::3] if effort.quick else epsilons, effort)

    def _of_split(
        self, dataset: str, split: Split, epsilons: Sequence[float], effort: Effort
    ) -> Iterator[Run]:
        spent: dict[str, Outcome] = {}
        others = self.peers if effort.peers and not effort.quick and split.seed < _PEER_REPEATS else ()
        for epsilon in epsilons:
            for name in (*self.methods, *others):
                if name not in (effort.methods or self._usual(dataset, (*self.methods, *others))):
                    continue
                if name == "non-private" and epsilon != epsilons[0]:
                    continue
                at = 0.0 if name == "non-private" else epsilon
                method = METHODS[name]
                row = Row(
                    self.name,
                    dataset,
                    name,
                    at,
                    split.seed,
                    split.name,
                    protocol=method.protocol,
                    quick=effort.quick,
                )
                yield Run(row, lambda r=row, s=split, o=spent: self._run(r, s, o))  # type: ignore[misc]

    @staticmethod
    def _usual(dataset: str, methods: Sequence[str]) -> Sequence[str]:
        """What is run unless methods are named."""
        return [name for name in methods if dataset not in _LARGE or name not in _SLOW]

    def _run(self, row: Row, split: Split, spent: dict[str, Outcome]) -> Row:
        watch = not self.is_curve and split.seed == 0
        try:
            found = METHODS[row.method].fit(self.task, split, row.epsilon, watch)
        except ValueError as error:
            return replace(row, status=f"refused: {error}")
        except PeerFailed as error:
            return replace(row, status=str(error))
        spent[row.method] = found
        plain = spent.get("non-private")
        both = plain is not None and plain.megabytes and found.megabytes
        return replace(
            row,
            value=found.accuracy,
            promise=found.promise,
            ratio=None if plain is None else found.seconds / plain.seconds,
            memory=found.megabytes / plain.megabytes if both else None,  # type: ignore[operator, union-attr]
        )

    @property
    def is_curve(self) -> bool:
        """Whether this is a figure against epsilon."""
        return any(len(epsilons) > 2 for epsilons in self.budgets.values())


_QUICK = ("synthetic-L", "adult")
#: Other libraries take most of the time; they get the first splits only.
_PEER_REPEATS = 3
#: With many rows and classes, methods that make many passes for every class would take most of the two hours; they
#: run where they are named (`--method`).
_LARGE = ("covtype", "mnist")
_SLOW = ("noisy-gd", "noisy-gd-dissertation", "psgd", "psgd-dissertation", "scpsgd", "frank-wolfe")
_LOW = {"synthetic-L": (0.1,), "adult": (0.1,), "kddcup99": (0.1,), "covtype": (1.0,), "mnist": (1.0,)}
_HIGH = {"synthetic-H": (0.1,), "gisette": (0.1,), "real-sim": (0.1,), "rcv1": (0.1,)}
_SVM_HIGH = {("synthetic-H-2000" if name == "synthetic-H" else name): at for name, at in _HIGH.items()}
_REPEATS = {
    "synthetic-L": 10,
    "adult": 10,
    "kddcup99": 10,
    "covtype": 3,
    "mnist": 3,
    "synthetic-H": 5,
    "synthetic-H-2000": 10,
    "gisette": 10,
    "real-sim": 5,
    "rcv1": 5,
}
_INDUSTRIAL = dict.fromkeys(("industrial-1", "industrial-2", "industrial-3", "industrial-4"), (0.1,))
_GRID = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0)
_COLUMNS = ("NP baseline", "AMP", "H-F AMP", "P-SGD", "P-PSGD", "P-SCPSGD", "P-FW")


def _printed(rows: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], float]:
    return {
        (dataset, column): value
        for dataset, values in rows.items()
        for column, value in zip(_COLUMNS, values, strict=True)
    }


_LOGISTIC_LOW = _printed(
    {
        "synthetic-L": (94.9, 83.1, 80.6, 81.6, 81.7, 76.4, 81.8),
        "adult": (84.8, 79.1, 78.7, 78.5, 77.4, 77.2, 76.9),
        "kddcup99": (99.1, 97.5, 97.4, 98.0, 98.1, 95.8, 96.8),
        "covtype": (71.2, 64.3, 63.5, 65.0, 62.4, 62.2, 63.0),
        "mnist": (91.5, 71.9, 70.5, 68.6, 68.0, 63.2, 65.0),
    }
)
_LOGISTIC_HIGH = _printed(
    {
        "synthetic-H": (95.8, 53.2, 51.4, 52.8, 53.5, 52.0, 57.6),
        "gisette": (96.6, 62.8, 59.7, 61.5, 62.3, 61.3, 58.3),
        "real-sim": (93.3, 73.1, 71.9, 66.3, 66.1, 65.6, 69.8),
        "rcv1": (93.5, 64.2, 59.9, 55.1, 58.9, 56.2, 64.1),
    }
)
_SVM = _printed(
    {
        "synthetic-L": (94.9, 89.3, 87.8, 85.6, 86.2, 79.4, 86.8),
        "adult": (84.8, 79.6, 77.5, 79.0, 76.5, 76.0, 77.8),
        "kddcup99": (99.1, 98.7, 98.7, 98.5, 98.5, 98.1, 98.0),
        "covtype": (71.5, 66.4, 65.3, 64.3, 62.3, 62.7, 63.3),
        "mnist": (91.5, 74.7, 73.7, 69.6, 72.9, 70.6, 65.1),
        "synthetic-H-2000": (96.5, 55.2, 54.3, 55.0, 56.6, 55.6, 56.0),
        "gisette": (96.6, 69.9, 67.9, 65.7, 70.6, 66.8, 66.8),
        "real-sim": (93.6, 78.3, 76.7, 73.6, 71.8, 69.7, 78.3),
        "rcv1": (93.8, 74.5, 72.9, 71.3, 70.1, 69.7, 75.8),
    }
)
_LOGISTIC_INDUSTRIAL = _printed(
    {
        "industrial-1": (75.3, 75.3, 75.3, 75.3, 75.3, 75.3, 75.3),
        "industrial-2": (72.2, 70.4, 70.1, 69.8, 69.5, 68.9, 68.6),
        "industrial-3": (73.6, 71.9, 71.8, 71.8, 71.4, 71.2, 71.6),
        "industrial-4": (82.1, 81.7, 81.7, 81.7, 81.5, 81.3, 81.0),
    }
)
_SVM_INDUSTRIAL = _printed(
    {
        "industrial-1": (75.3, 75.3, 75.3, 75.3, 75.3, 75.3, 75.3),
        "industrial-2": (72.2, 70.8, 70.6, 70.8, 70.3, 70.2, 68.6),
        "industrial-3": (73.6, 71.3, 71.2, 71.2, 71.1, 71.1, 71.1),
        "industrial-4": (81.9, 81.5, 81.3, 81.7, 81.5, 81.2, 81.2),
    }
)
_LARGE_METHODS = ("non-private", "auto", "objective", "psgd", "objective-dissertation")
_CURVES = ("non-private", "auto", "objective", "noisy-gd", "objective-dissertation")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Classification(
            "logistic-low",
            "Logistic regression, low dimension (dissertation, Figure 4.4)",
            "logistic",
            _LOW,
            _REPEATS,
            peers=tuple(PEERS),
            printed=_LOGISTIC_LOW,
        ),
        Classification(
            "logistic-high",
            "Logistic regression, high dimension (dissertation, Figure 4.5)",
            "logistic",
            _HIGH,
            _REPEATS,
            printed=_LOGISTIC_HIGH,
        ),
        Classification(
            "svm",
            "Huber-SVM (dissertation, Figure 4.10)",
            "svm",
            {**_LOW, **_SVM_HIGH},
            _REPEATS,
            (
                "non-private",
                "auto",
                "objective",
                "noisy-gd",
                "psgd",
                "scpsgd",
                "frank-wolfe",
                "objective-dissertation",
            ),
            printed=_SVM,
        ),
        Classification(
            "logistic-industrial",
            "Logistic regression, generated rows of industrial shapes (dissertation, Figure 4.6)",
            "logistic",
            _INDUSTRIAL,
            dict.fromkeys(_INDUSTRIAL, 2),
            _LARGE_METHODS,
            printed=_LOGISTIC_INDUSTRIAL,
        ),
        Classification(
            "svm-industrial",
            "Huber-SVM, generated rows of industrial shapes (dissertation, Figure 4.10, last block)",
            "svm",
            _INDUSTRIAL,
            dict.fromkeys(_INDUSTRIAL, 2),
            _LARGE_METHODS,
            printed=_SVM_INDUSTRIAL,
        ),
        Classification(
            "industrial-curves",
            "Accuracy against epsilon on generated rows of industrial shapes (dissertation, Figure 4.3)",
            "logistic",
            {"industrial-1": (0.01, 0.0316, 0.1, 1.0)},
            {"industrial-1": 2},
            _CURVES,
        ),
        Classification(
            "logistic-curves",
            "Accuracy against epsilon, logistic regression (dissertation, Figures 4.1 and 4.2)",
            "logistic",
            dict.fromkeys(("synthetic-L", "adult", "kddcup99", "real-sim", "rcv1"), _GRID),
            dict.fromkeys(_REPEATS, 3),
            _CURVES,
        ),
        Classification(
            "svm-curves",
            "Accuracy against epsilon, Huber-SVM (dissertation, Figures 4.7 and 4.8)",
            "svm",
            dict.fromkeys(("synthetic-L", "adult", "kddcup99"), _GRID),
            dict.fromkeys(_REPEATS, 3),
            _CURVES,
        ),
        Perturbations(
            "perturbation",
            "Objective and output perturbation against epsilon (Jain and Thakurta 2014, Figure 1 a and b)",
            (0.1, 0.316, 1.0, 3.16, 10.0),
            PURE,
            datasets=("url", "cod-rna"),
        ),
        Perturbations(
            "dimension",
            "Accuracy against blown-up dimension, epsilon 5 (Jain and Thakurta 2014, Figure 1 c)",
            (5.0,),
            PURE,
            (1, 10, 100, 1000),
        ),
        Perturbations(
            "sampling",
            "Sampled vertices against blown-up dimension, epsilon 10 (Jain and Thakurta 2014, Figure 1 d)",
            (10.0,),
            SAMPLING,
            (1, 10, 100, 1000),
        ),
        Recommenders(),
        Rates(),
        Fingerprints(),
        Huberization(),
        Queries(),
        Audits(),
    )
}
