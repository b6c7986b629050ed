"""Hypothesis profiles: how many examples each property gets."""

import os

from hypothesis import settings

settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.register_profile("nightly", max_examples=500, deadline=None)

settings.load_profile("ci" if os.environ.get("CI") else "default")
