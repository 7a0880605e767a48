"""The build of the Kubernetes parts: pinned versions, clear refusals."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.kubernetes import tools


def test_the_version_named_is_the_version_built() -> None:
    pinned = (tools.MODULES / "kubernetes" / "go.mod").read_text()
    assert re.findall(r"require k8s.io/kubernetes v(\S+)", pinned) == [tools.KUBERNETES_VERSION]


def test_every_tool_is_pinned_with_checksums() -> None:
    for module in tools.BINARIES:
        assert (tools.MODULES / module / "go.sum").stat().st_size > 0, module


def test_without_go_it_says_what_to_install_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    built = subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.tools"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 1
    assert "Go 1.26 or newer is missing: install it" in built.stderr
    cache = tmp_path / "drivetrain" / "kubernetes"
    assert [path.name for path in cache.iterdir()] == [".lock"]
