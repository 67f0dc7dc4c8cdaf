"""The code that CONTRIBUTING prints, each block a module."""

import re
import sys
import types
from pathlib import Path

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def printed(heading):
    """What CONTRIBUTING prints under a heading: as a module, and as text."""
    pattern = rf"^## {heading}\n(?:(?!^## ).)*?^```python\n(.*?)^```"
    code = re.search(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    module = types.ModuleType(heading.replace(" ", "_").lower())
    sys.modules[module.__name__] = module  # pickles name it
    exec(compile(code, "CONTRIBUTING.md", "exec"), module.__dict__)
    return module, code


LOSS, LOSS_CODE = printed("Add a loss")
SOLVER, SOLVER_CODE = printed("Add a solver")
ESTIMATOR, ESTIMATOR_CODE = printed("Add an estimator")
