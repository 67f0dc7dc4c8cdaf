"""Settings for every test: no deadlines (machines differ), repeatable examples on build servers."""

import os

from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("build" if os.environ.get("CI") else "here")
