"""Model files: saved as text without pickle, checked when they are loaded, verified by recomputing their epsilon.

``save`` writes one JSON file with the released numbers, the schema, the statement and the event tree from which
epsilon follows. ``load`` executes nothing. ``verify`` recomputes epsilon from the events, and checks signature and
ledger where they are given. ``to_html`` shows it to people, ``to_sklearn`` and ``to_onnx`` hand it to other tools.
"""

from discreet.card.card import About, Card, CardError
from discreet.card.export import to_onnx, to_sklearn
from discreet.card.files import load, new_key, read, save, sign_file
from discreet.card.page import to_html
from discreet.card.released import coefficients
from discreet.card.verification import Verification, verify

__all__ = [
    "About",
    "Card",
    "CardError",
    "Verification",
    "coefficients",
    "load",
    "new_key",
    "read",
    "save",
    "sign_file",
    "to_html",
    "to_onnx",
    "to_sklearn",
    "verify",
]
