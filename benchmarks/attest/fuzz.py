"""Fuzzed inputs and hostile files: a clear error or a result; no charge without a run, no run without a charge.

Everything happens in one process, a few hundred cases a second, so that a hundred thousand are a matter of minutes:

* models: a model file with bytes changed or cut, or with values exchanged, removed or added and the checksum made to
  fit again, as somebody would who means harm. It is refused with `CardError`, or it loads, and then what it claims is
  no less than what its events cost;
* events, statements: the same of descriptions of events, which must be refused or priced, and of statements;
* ledgers: bytes changed, cut or zeroed; it is refused with `LedgerError`, or every charge is there;
* tables: CSV and Parquet of any bytes; schemas and policies of any text;
* rows: arrays, lists, labels and parameters of any shape, type and value, given to estimators.

A case is named by its seed: ``python -m benchmarks.attest.fuzz --case KIND SEED`` runs it again. Run
``python -m benchmarks.attest.fuzz 100000``.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import json
import math
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import discreet
from discreet import Ledger, LedgerError, card, release
from discreet.card import files
from discreet.privacy.accounting import accountants
from discreet.privacy.events import Event, Pure
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.policy import Policy
from discreet.privacy.statement import PrivacyStatement
from discreet.tables.reading import read_table
from discreet.tables.schema import Categorical, Numeric, Schema, SchemaError, Target

_SECONDS = 30  # after which a case counts as one that does not end
_SHORTEST = 10  # letters of an error that says something
_LARGEST = 8.0  # number in an event that is priced
_REPORTED = 20  # surprises that are told in full
_CHARGES = 3  # in the ledger that is damaged
#: Values that programs stumble over.
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1e-300, 1e308),
    *(5e-324, "", "x", "é", "\x00", "\ud800", "nan", "inf", "../../etc/passwd", "__class__", "a" * 300),
    *([], [[]], {}, {"kind": "Gaussian"}, [0] * 50, {"": None}, [None], "replace-one", "Pure", "<f8"),
)


@dataclass
class Fuzzed:
    """What so many cases showed: refused and accepted ones by kind, and what was not expected."""

    cases: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)
    n_surprises: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether everything went as expected."""
        return self.n_surprises == 0

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "passed": self.passed}


class Surprise(Exception):
    """Something that must not happen."""


def fuzz(count: int, seed: int = 0, kinds: Sequence[str] = ()) -> Fuzzed:
    """So many cases, of all kinds in turn."""
    begin, found, chosen = time.perf_counter(), Fuzzed(), list(kinds) or list(KINDS)
    weights = [KINDS[kind][0] for kind in chosen]
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, _seeds(Path(folder)) as seeds:
        for place in range(count):
            kind = rng.choices(chosen, weights)[0]
            one = seed * 10**9 + place
            found.cases += 1
            try:
                with _limited(_SECONDS):
                    refused = KINDS[kind][1](random.Random(one), seeds)
            except (Surprise, Exception) as problem:
                found.n_surprises += 1
                if len(found.surprises) < _REPORTED:
                    found.surprises.append(f"{kind} {one}: {type(problem).__name__}: {str(problem)[:300]!r}")
                continue
            counts = found.refused if refused else found.accepted
            counts[kind] = counts.get(kind, 0) + 1
    found.seconds = time.perf_counter() - begin
    return found


@dataclass(frozen=True)
class _Seeds:
    """What is changed: whole files of every kind."""

    folder: Path
    models: list[bytes]
    ledger: bytes
    schema: dict[str, Any]

    def written(self, name: str, content: bytes) -> Path:
        """A file with this content."""
        path = self.folder / name
        path.write_bytes(content)
        return path


@contextlib.contextmanager
def _seeds(folder: Path) -> Iterator[_Seeds]:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(60, 2)), rng.integers(0, 2, 60)
    schema = Schema(
        {"age": Numeric(0, 100), "ward": Categorical(("n", "s"))}, target=Target("sick", ("no", "yes"))
    )
    ledger = Ledger(folder / "paid", epsilon=10.0, delta=0.1)
    for _ in range(_CHARGES):
        ledger.charge(Pure(0.5), label="seed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models: list[Any] = [
            discreet.PrivateLogisticRegression(1.0, 1e-3, classes=[0, 1], solver="output", ledger=ledger),
            discreet.PrivateLinearSVC(1.0, 1e-3, classes=["a", "b"], solver="objective"),
            discreet.PrivateRidge(1.0, 1e-3, target_bounds=(0.0, 1.0)),
            discreet.PrivateLasso(1.0, 0.0, target_bounds=(0.0, 1.0)),
        ]
        labels = [y, np.array(["a", "b"])[y], y / 1.0, y / 1.0]
        saved = []
        for model, told in zip(models, labels, strict=True):
            card.save(model.fit(X, told), folder / "model.json", overwrite=True)
            saved.append((folder / "model.json").read_bytes())
    path = folder / "ledger"
    account = Ledger(path, epsilon=10.0, delta=0.1)
    for _ in range(_CHARGES):
        account.charge(Pure(0.5), label="seed")
    schema.to_file(folder / "schema.json")
    content = json.loads((folder / "schema.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield _Seeds(folder, saved, path.read_bytes(), content)


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """A case that does not end is a surprise."""

    def stop(*_: Any) -> None:
        raise Surprise(f"no end within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- changes -----------------------------------------------------------------------------------------------------------


def scribbled(rng: random.Random, content: bytes) -> bytes:
    """Bytes changed, cut, zeroed, doubled or put in."""
    place, size = rng.randrange(len(content)), rng.choice((1, 1, 4, 64, 1024))
    made = {
        0: lambda: content[:place] + rng.randbytes(size) + content[place + size :],
        1: lambda: content[:place],
        2: lambda: content[:place] + bytes(size) + content[place + size :],
        3: lambda: content[:place] + rng.randbytes(size) + content[place:],
        4: lambda: content[:place] + content[place + size :],
        5: lambda: rng.randbytes(rng.randrange(300)),
    }
    return made[rng.choice((0, 0, 0, 1, 2, 3, 4, 5))]()


def twisted(rng: random.Random, content: Any, times: int = 1) -> Any:
    """The same JSON with values exchanged for hostile ones, moved, removed or added."""
    content = copy.deepcopy(content)
    for _ in range(times):
        places = list(_places(content))
        if not places:
            return _hostile(rng)
        holder, key = rng.choice(places)
        act = rng.randrange(6)
        if act == 0 and isinstance(holder, dict):
            del holder[key]
        elif act == 1 and isinstance(holder, dict):
            holder[str(_hostile(rng))[:20]] = _hostile(rng)
        elif act == 2:
            other, name = rng.choice(places)
            holder[key] = copy.deepcopy(other[name])
        elif act == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            factor = rng.choice((-1, 0.5, 2, 1e-6, 1e6, 0))
            # Whole numbers beyond the largest float stay as they are.
            with contextlib.suppress(OverflowError):
                holder[key] *= factor
        elif act == 4:
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"kind": holder[key]}
        else:
            holder[key] = _hostile(rng)
    return content


def _hostile(rng: random.Random) -> Any:
    """A value of its own: what is put into one document is changed there, and must not come back in the next."""
    return copy.deepcopy(rng.choice(HOSTILE))


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a JSON document, by its holder and its key."""
    pending = [content]
    while pending:
        holder = pending.pop()
        keys: Any = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])


def refusing(read: Callable[[], Any], *allowed: type[Exception]) -> Any:
    """What ``read`` gives, or None if it refuses with an error that says something."""
    try:
        return read()
    except allowed as problem:
        if len(str(problem)) <= _SHORTEST:
            raise Surprise(f"an error that says nothing: {problem!r}") from problem
        return None


# -- kinds of cases ----------------------------------------------------------------------------------------------------


def _models(rng: random.Random, seeds: _Seeds) -> bool:
    content = rng.choice(seeds.models)
    if rng.random() < 0.3:
        content = scribbled(rng, content)
    else:
        fields = json.loads(content)
        for seal in ("sha256", "signature"):
            fields.pop(seal, None)
        fields = twisted(rng, fields, rng.choice((1, 1, 2, 4)))
        with contextlib.suppress(ValueError, TypeError):
            fields["sha256"] = hashlib.sha256(files._canonical(fields)).hexdigest()
        try:
            content = json.dumps(fields).encode("utf-8", "surrogatepass")
        except ValueError:
            return True
    path = seeds.written("hostile.json", content)
    model = refusing(lambda: card.load(path), card.CardError)
    if model is None:
        return True
    if hasattr(model, "predict"):
        refusing(lambda: model.predict(np.zeros((1, 2))), ValueError, TypeError)
    if not _soon_priced(model.privacy_.event.to_dict()):
        return False
    checked = refusing(lambda: card.verify(path), card.CardError)
    if checked is not None and not checked.epsilon <= model.privacy_.guarantee.epsilon * (1 + 1e-9):
        raise Surprise(
            f"epsilon {model.privacy_.guarantee.epsilon} was verified, but costs {checked.epsilon}"
        )
    return checked is None


def _soon_priced(event: Any) -> bool:
    """Whether a price takes seconds at most: that of a composition takes time in proportion to its largest epsilon."""
    values = [holder[key] for holder, key in _places(event)]
    return not any(isinstance(value, int | float) and value > _LARGEST for value in values)


def _events(rng: random.Random, seeds: _Seeds) -> bool:
    stated = json.loads(rng.choice(seeds.models))["privacy"]
    event = refusing(lambda: Event.from_dict(twisted(rng, stated["event"])), ValueError)
    if event is None:
        return True
    if Event.from_dict(event.to_dict()) != event:
        raise Surprise("an event is not read back as it was written")
    if not _soon_priced(event.to_dict()):
        return False
    price = refusing(lambda: accountants.epsilon(event, 1e-3, Neighboring.REPLACE_ONE), ValueError)
    if price is not None and not price >= 0.0:
        raise Surprise(f"{event} costs {price}")
    return price is None


def _statements(rng: random.Random, seeds: _Seeds) -> bool:
    stated = twisted(rng, json.loads(rng.choice(seeds.models))["privacy"], rng.choice((1, 2)))
    found = refusing(lambda: PrivacyStatement.from_dict(stated), ValueError)
    if found is not None and _soon_priced(found.event.to_dict()):
        str(found)
    return found is None


def _ledgers(rng: random.Random, seeds: _Seeds) -> bool:
    content = scribbled(rng, seeds.ledger)
    path = seeds.written("damaged", content)
    path.with_name("damaged-journal").unlink(missing_ok=True)
    history = refusing(lambda: Ledger(path).history(), LedgerError, ValueError)
    if history is not None and len(history) != _CHARGES:
        raise Surprise(f"a damaged ledger was opened with {len(history)} of {_CHARGES} charges")
    return history is None


def _tables(rng: random.Random, seeds: _Seeds) -> bool:
    letters = 'age,wrdsickno"\n\r0123 é\x00;\t'
    lines = "".join(rng.choices(letters, k=rng.randrange(80))).encode()
    content = b"age,ward,sick\n" + (lines if rng.random() < 0.6 else rng.randbytes(rng.randrange(80)))
    name = "t.csv"
    if rng.random() < 0.3:
        name, content = "t.parquet", b"PAR1" + rng.randbytes(rng.randrange(200)) + b"PAR1"
    path = seeds.written(name, content)
    mode = rng.choice(("error", "null"))
    return refusing(lambda: read_table(path, bad_rows=mode), ValueError, OSError) is None


_POLICY = b"""[data.cohort]
ledger = "cohort.ledger"
epsilon = 3.0
delta = 1e-6

[people.alice]
cohort = 1.0
"""


def _schemas(rng: random.Random, seeds: _Seeds) -> bool:
    if rng.random() < 0.4:
        path = seeds.written("policy.toml", scribbled(rng, _POLICY))
        return refusing(lambda: Policy.read(path), LedgerError) is None
    text = json.dumps(twisted(rng, seeds.schema, rng.choice((1, 2, 4)))).encode()
    path = seeds.written("fuzzed.json", text if rng.random() < 0.8 else scribbled(rng, text))
    return refusing(lambda: Schema.from_file(path), SchemaError) is None


def _numbers(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """An array of any kind of numbers, with strange ones among them."""
    local = np.random.default_rng(rng.randrange(2**32))
    values = local.normal(size=shape) * 10.0 ** rng.choice((-300, -3, 0, 0, 0, 3, 300))
    if values.size and rng.random() < 0.5:
        strange = (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e308, -1e308)
        values.flat[rng.randrange(values.size)] = rng.choice(strange)
    kind = rng.choice(("f8", "f8", "f8", "f4", "f2", "i8", "?", "O", "U5", "c16"))
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(kind)


_PARAMETERS = (
    *("epsilon", "delta", "feature_bound", "l2", "classes", "solver", "bad_rows", "n_samples"),
    *("neighboring", "max_rows_per_group", "fit_intercept", "target_bounds"),
)


def _rows(rng: random.Random, seeds: _Seeds) -> bool:
    name = rng.choice(("PrivateLogisticRegression", "PrivateLinearSVC", "PrivateRidge"))
    told: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3, "bad_rows": rng.choice(("error", "null"))}
    told |= {"target_bounds": (-1.0, 1.0)} if name == "PrivateRidge" else {"classes": [0, 1]}
    told["solver"] = "statistics" if name == "PrivateRidge" else rng.choice(("output", "objective"))
    if rng.random() < 0.4:
        told[rng.choice(_PARAMETERS)] = _hostile(rng)
    n = rng.randrange(7)
    shape = rng.choice(((n, 2), (n, 2), (n, 2), (n,), (n, 2, 1), (n, 0), ()))
    X = _numbers(rng, shape)
    y: Any = [
        rng.choice((0, 1, 0, 1, 0, 1, 2, None, "a", 0.5, math.nan))
        for _ in range(rng.choice((n, n, n, n + 1)))
    ]
    if rng.random() < 0.2:
        X = X.tolist()
    return _counted(getattr(discreet, name), told, X, y)


def _counted(kind: Any, told: dict[str, Any], X: Any, y: Any) -> bool:
    """Fit, and count how often was charged and how often data met noise."""
    charges: list[Any] = []
    runs: list[Any] = []
    charge, run = release.charge, release.run

    def charging(ledger: Any, plan: Any, label: str) -> Any:
        found = charge(ledger, plan, label)
        charges.append(plan)
        return found

    def running(*arguments: Any, **options: Any) -> Any:
        runs.append(None)
        return run(*arguments, **options)

    with mock.patch.object(release, "charge", charging), mock.patch.object(release, "run", running):
        try:
            fitted = refusing(lambda: kind(**told).fit(X, y), ValueError, TypeError)
        finally:
            if len(charges) != len(runs):
                raise Surprise(f"{len(charges)} charges, {len(runs)} runs")
    if fitted is None and charges:
        raise Surprise("charged, and then failed")
    return fitted is None


#: How often each kind comes, and what it does; true if the case was refused.
KINDS: dict[str, tuple[int, Callable[[random.Random, _Seeds], bool]]] = {
    "models": (30, _models),
    "events": (15, _events),
    "statements": (15, _statements),
    "ledgers": (10, _ledgers),
    "tables": (10, _tables),
    "schemas": (10, _schemas),
    "rows": (10, _rows),
}


def main() -> int:
    """Print what was found; 1 if something was not expected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest.fuzz", description="hostile inputs")
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=(), choices=list(KINDS))
    parser.add_argument(
        "--case", nargs=2, metavar=("KIND", "SEED"), help="run one case again, with its traceback"
    )
    arguments = parser.parse_args()
    if arguments.case:
        with tempfile.TemporaryDirectory() as folder, _seeds(Path(folder)) as seeds:
            KINDS[arguments.case[0]][1](random.Random(int(arguments.case[1])), seeds)
        return 0
    found = fuzz(arguments.count, arguments.seed, arguments.kinds)
    print(json.dumps(found.to_dict(), indent=1))
    return 0 if found.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
