"""The gallery: every script holds what it concludes, at a tenth of its size, and its stored page is its own."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))

pytest.importorskip("altair", reason="pictures need Altair")
_spec = importlib.util.spec_from_file_location("gallery", DOCS / "_ext" / "gallery.py")
gallery = sys.modules["gallery"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gallery)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_holds_what_it_concludes(script):
    page, pictures = gallery.run(script, gallery.TINY)
    assert "assert " in page
    assert pictures
    assert all(picture.startswith("<svg") for picture in pictures.values())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_stored_page_is_that_of_its_script(script):
    """Without what was printed and drawn, the text and the code of a page are those of its script, word for word."""
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((\S+\.svg)\)", page)
    assert pictures
    assert all((script.parent / picture).exists() for picture in pictures)
    bare = re.sub(r"\n\n!\[[^\]]*\]\(\S+\.svg\)", "", page)
    bare = re.sub(r"\n\n```text\n.*?\n```(?=\n)", "", bare, flags=re.DOTALL)
    assert bare == gallery.unrun(script), "run `make gallery`"
    assert "SIZE" not in page


def test_the_front_page_lists_every_script():
    assert (DOCS / "gallery" / "index.md").read_text(encoding="utf-8") == gallery.index(SCRIPTS)
    assert len(SCRIPTS) >= 12


def test_a_conclusion_that_is_false_fails(tmp_path):
    script = tmp_path / "false.py"
    script.write_text("# %% [markdown]\n# # A title\n#\n# Text.\n\n# %%\nassert SIZE > 1\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        gallery.run(script)
