"""Prometheus and promtool of the distribution, or a skip with the reason."""

import os
import shutil

import pytest

REASON = "no {} on the path: install Debian's prometheus"


def find(name: str) -> str:
    """The path of `prometheus` or `promtool`; where CI is set it must be there."""
    found = shutil.which(name)
    if found is None:
        reason = REASON.format(name)
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found
