"""What the holder of the data declares about a model: for people, checked by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from discreet.card.kinds import CardError

_LONGEST = 2000  # characters of one declaration


@dataclass(frozen=True)
class About:
    """Declarations of the holder, each optional; what is left empty is shown as not recorded.

    Parameters
    ----------
    title : of the model, in a few words.
    purpose : what the model is for, and what it must not be used for.
    data : which table it was trained on.
    encoder : which fixed encoder made the features: its name, version, and the hash of its weights.
    period : which time the table covers.
    date : when the model was released.
    owner : who answers for the model.
    approval : who approved the release, and when.

    Privacy
    -------
    Published with the model as it is written here: keep numbers that were counted in private data out of it.

    Examples
    --------
    >>> About(purpose="triage of letters", owner="records office").to_dict()
    {'purpose': 'triage of letters', 'owner': 'records office'}
    """

    title: str = ""
    purpose: str = ""
    data: str = ""
    encoder: str = field(default="", kw_only=True)
    period: str = ""
    date: str = ""
    owner: str = ""
    approval: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise CardError(f"{name} must be a text of at most {_LONGEST} characters, got {value!r:.80}")

    def to_dict(self) -> dict[str, str]:
        """The declarations that were made."""
        return {name: value for name, value in asdict(self).items() if value}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> About:
        """Rebuild declarations; ``CardError`` for anything else."""
        strange = set(content) - {one.name for one in fields(About)}
        if strange:
            raise CardError("it declares something about the model that is not known")
        return About(**content)
