"""Programs of others, attacked from outside: a broken toy is refuted, a correct one is not, nonsense is refused."""

import sys

import pytest

from discreet.audit import audit_program
from discreet.cli import main

TOY = """
import json, random, sys
share, runs = float(sys.argv[1]), int(sys.argv[2])
print(json.dumps({"name": "toy", "epsilon": 1.0, "delta": 0.0, "relation": "replace-one"}))
draw = random.Random(7)
for _ in range(runs):
    for side in (0, 1):  # a sum of one number in [0, 1], with Laplace noise
        noise = draw.expovariate(1.0) - draw.expovariate(1.0)
        print(json.dumps([side, [side + share * noise, draw.random()]]))
"""


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(TOY)
    return [sys.executable, str(path)]


def test_a_correct_program_is_not_refuted(toy):
    report = audit_program([*toy, "1.0"], runs=4000)
    assert report.passed
    assert 0.5 < report.attacked.bound.epsilon <= 1.0
    assert "the program itself" in str(report)
    assert "replay" not in str(report)


@pytest.mark.parametrize("share", ["0.5", "0.0"])
def test_a_program_with_too_little_noise_is_refuted(toy, share):
    report = audit_program([*toy, share], runs=4000)
    assert not report.passed
    assert report.attacked.alarm.epsilon > 1.0
    assert "THE GUARANTEE IS FALSE" in str(report)


def test_a_program_that_adds_no_noise_at_all_is_refuted(tmp_path):
    """Two constants have no spread, by which differences could be measured."""
    path = tmp_path / "bare.py"
    path.write_text(TOY.replace("[side + share * noise, draw.random()]", "[3.0 * side, 7.0]"))
    assert not audit_program([sys.executable, str(path), "0.0"], runs=400).passed


def test_by_command(toy, capsys, tmp_path):
    command = ["audit", "--program", " ".join([*toy, "0.2"]), "--runs", "600"]
    assert main([*command, "--output", str(tmp_path / "a.html")]) == 1
    assert "THE GUARANTEE IS FALSE" in capsys.readouterr().out
    assert "THE GUARANTEE IS FALSE" in (tmp_path / "a.html").read_text()
    assert main([*command, "--twin"]) == 1
    assert "cannot halve the noise" in capsys.readouterr().err


def test_a_program_cannot_forge_a_line_of_the_report(tmp_path, capsys):
    """Its name is its own; the verdict is ours."""
    path = tmp_path / "toy.py"
    path.write_text(TOY.replace('"toy"', '"toy\\nNothing contradicts the guarantee.\\x1b[8m"'))
    assert main(["audit", "--program", f"{sys.executable} {path} 0.2", "--runs", "600"]) == 1
    told = capsys.readouterr().out
    assert "\nNothing contradicts" not in told
    assert "\x1b" not in told
    assert "THE GUARANTEE IS FALSE" in told


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('no data')", "failed: no data"),
        ("print('hello')", "must print its claim"),
        ("print('{}')", "must print its claim"),
        (
            'print(\'{"epsilon": 1, "delta": 0, "relation": "replace-one"}\'); print("[0, [1]]")',
            "20 runs or more",
        ),
        (
            'print(\'{"epsilon": 1, "delta": 0, "relation": "replace-one"}\')\n'
            'print("[0, [NaN]]\\n[1, [1]]\\n" * 30)',
            "finite",
        ),
        ("print('[' * 100000)", "must print its claim"),
        ("import sys; sys.stderr.write('a\\n\\x1b[8m'); sys.exit(1)", r"failed: \\x1b\[8m"),
    ],
)
def test_programs_that_say_something_else_are_refused(code, message):
    with pytest.raises(ValueError, match=message):
        audit_program([sys.executable, "-c", code], runs=30)
    with pytest.raises(ValueError, match="cannot be run"):
        audit_program(["/nonexistent"], runs=30)
