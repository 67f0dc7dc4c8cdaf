"""A policy file: who may spend how much of which data set.

A policy is a TOML file. Every data set has one ledger with one cap, which is the guarantee. A person's share is a
second, smaller cap on what that person spends, kept in a separate ledger:

    [data.cohort]
    ledger = "cohort.ledger"
    epsilon = 3.0
    delta = 1e-6

    [people.alice]
    cohort = 1.0        # alice may spend at most this epsilon, at the same delta

    [people.bob]
    cohort = "all"      # no limit except that of the data set
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger.ledger import BudgetExceeded, Charge, Ledger, Remaining
from discreet.privacy.ledger.sqlite import LedgerError

_SETTINGS = {"ledger", "epsilon", "delta", "neighboring", "adaptive", "unit"}


class Share(Ledger):
    """A data set's ledger as one person may use it: every charge counts against both caps.

    Privacy
    -------
    The guarantee is the data set's cap, which ``Ledger`` enforces. The person's own ledger is charged first, so a crash
    between the two counts too much for the person and never too little for the data.
    """

    def __init__(self, path: str | os.PathLike[str], who: str, own: Ledger | None) -> None:
        super().__init__(path)
        self.who = who
        self.own = own

    def charge(
        self,
        event: Event,
        *,
        label: str = "",
        neighboring: Neighboring | str | None = None,
        who: str | None = None,
        unit: str | None = None,
        kind: str = "dp",
    ) -> Charge:
        """Charge as in `Ledger.charge`, in this person's name."""
        if who not in (None, self.who):
            raise LedgerError(f"this is the share of {self.who!r}; {who!r} cannot charge it")
        remarks: dict[str, Any] = {"label": label, "neighboring": neighboring, "unit": unit, "kind": kind}
        if self.own is not None and super().admits(event):
            try:
                self.own.charge(event, who=self.who, **remarks)
            except BudgetExceeded as error:
                raise BudgetExceeded(f"the share of {self.who!r} does not allow it: {error}") from None
        return super().charge(event, who=self.who, **remarks)

    def admits(self, event: Event) -> bool:
        """Whether both caps would admit ``event`` now; charges nothing."""
        return super().admits(event) and (self.own is None or self.own.admits(event))

    def remaining(self) -> Remaining:
        """Return the largest single release that both caps would still admit, Gaussian or pure."""
        whole = super().remaining()
        return whole if self.own is None else whole.within(self.own.remaining())

    def __reduce__(self) -> Any:
        return _reopened_share, (str(self.path), self._file.terms.identity, self.who, self.own)


def _reopened_share(path: str, identity: str, who: str, own: Ledger | None) -> Share:
    """Reopen the same share in another process; refuse a different file at the same path."""
    share = Share.__new__(Share)
    share._open(Path(path), identity)
    share.who, share.own = who, own
    return share


@dataclass(frozen=True)
class Policy:
    """Who may spend how much of which data set.

    Attributes
    ----------
    path : the file.
    data : settings of every data set's ledger.
    people : for each person, the largest epsilon of each data set, or "all".

    Notes
    -----
    Privacy: the cap of a ledger holds with or without a policy. A policy divides it among people by the names that
    the operating system gives; it does not authenticate them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "policy.toml"
    >>> data = '[data.cohort]\\nledger = "cohort.ledger"\\nepsilon = 3.0\\ndelta = 1e-6\\n'
    >>> _ = path.write_text(data + "[people.ann]\\ncohort = 1.0\\n")
    >>> Policy.read(path).people["ann"]["cohort"]
    1.0
    """

    path: Path
    data: Mapping[str, Mapping[str, Any]]
    people: Mapping[str, Mapping[str, float | str]]

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Policy:
        """Read and check a policy file; ``LedgerError`` says what is wrong."""
        where = Path(path)
        try:
            content = tomllib.loads(where.read_text(encoding="utf-8"))
        except OSError as error:
            raise LedgerError(f"the policy {where} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise LedgerError(f"the policy {where} is not valid TOML: {error}") from None
        known = set(content) <= {"data", "people"} and bool(content.get("data"))
        if not known or not all(_is_table_of_tables(section) for section in content.values()):
            raise LedgerError(
                f"the policy {where} must hold [data.NAME] and [people.NAME] sections, no others"
            )
        policy = Policy(where.resolve(), content["data"], content.get("people", {}))
        policy._check()
        return policy

    def _check(self) -> None:
        for name, settings in self.data.items():
            missing, strange = {"ledger", "epsilon", "delta"} - set(settings), set(settings) - _SETTINGS
            for what, names in (("lacks", missing), ("has unknown settings", strange)):
                if names:
                    listed = ", ".join(sorted(names))
                    raise LedgerError(f"the policy {self.path}: [data.{name}] {what} {listed}")
        for person, shares in self.people.items():
            for name, share in shares.items():
                if name not in self.data:
                    raise LedgerError(
                        f"the policy {self.path}: {person!r} has a share of {name!r}, which is no data set"
                    )
                if share != "all" and not _is_finite_epsilon(share):
                    raise LedgerError(
                        f"the policy {self.path}: the share of {person!r} in {name!r} must be a finite epsilon greater "
                        f'than 0 or "all", got {share!r}'
                    )

    def dataset(self, name: str) -> Ledger:
        """Return the whole ledger of a data set; create it with its cap if it does not exist."""
        if name not in self.data:
            raise LedgerError(
                f"the policy {self.path} has no data set {name!r}; it has {', '.join(self.data)}"
            )
        settings = dict(self.data[name])
        return Ledger(self.path.parent / settings.pop("ledger"), **settings)

    def ledger(self, name: str, who: str) -> Share:
        """Return the ledger of a data set as ``who`` may use it; pass it as ``ledger=`` to an estimator."""
        whole = self.dataset(name)
        share = self.people.get(who, {}).get(name)
        if share is None:
            allowed = [person for person, shares in self.people.items() if name in shares]
            raise LedgerError(
                f"the policy {self.path} gives {who!r} no share of {name!r}; those who have one: "
                f"{', '.join(allowed) or 'nobody'}"
            )
        if share == "all":
            return Share(whole.path, who, None)
        own = Ledger(
            whole.path.with_name(f"{whole.path.name}.{_file_name(who)}"),
            float(share),
            whole.delta,
            neighboring=whole.neighboring,
            adaptive=whole.adaptive,
            unit=whole.unit,
        )
        return Share(whole.path, who, own)


def _is_finite_epsilon(share: Any) -> bool:
    number = isinstance(share, int | float) and not isinstance(share, bool)
    return number and 0 < share <= sys.float_info.max


def _is_table_of_tables(section: Any) -> bool:
    return isinstance(section, dict) and all(isinstance(part, dict) for part in section.values())


def _file_name(person: str) -> str:
    """Return a safe file name, unique per person: character codes have a fixed width."""
    return "".join(
        letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):06x}" for letter in person
    )
