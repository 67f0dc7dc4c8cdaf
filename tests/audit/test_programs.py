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
    assert "its own words" in str(report)
    assert "replay" not in str(report)


@pytest.mark.parametrize("share", ["0.5", "0.0"])
def test_a_program_with_too_little_noise_is_refuted(toy, share):
    report = audit_program([*toy, share], runs=4000)
    assert not report.passed
    assert report.attacked.alarm.epsilon > 1.0
    assert "THE PROMISE IS FALSE" in str(report)


def test_by_command(toy, capsys, tmp_path):
    command = ["audit", "--program", " ".join([*toy, "0.2"]), "--runs", "600"]
    assert main([*command, "--output", str(tmp_path / "a.html")]) == 1
    assert "THE PROMISE IS FALSE" in capsys.readouterr().out
    assert "THE PROMISE IS FALSE" in (tmp_path / "a.html").read_text()
    assert main([*command, "--twin"]) == 1
    assert "nobody can halve" in capsys.readouterr().err


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
    ],
)
def test_programs_that_say_something_else_are_refused(code, message):
    with pytest.raises(ValueError, match=message):
        audit_program([sys.executable, "-c", code], runs=30)
    with pytest.raises(ValueError, match="cannot be run"):
        audit_program(["/nonexistent"], runs=30)
