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


def test_to_an_earlier_build_only_the_objects_that_are_right_are_added(tmp_path: Path) -> None:
    """This Go can fetch a module, not build."""
    source = tmp_path / "module" / "api" / "openapi-spec"
    source.mkdir(parents=True)
    (source / "swagger.json").write_text("{}")
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'case "$1 $2" in\n'
        '"env GOVERSION") echo go1.26;;\n'
        f"""'mod download') echo '{{"Dir": "{tmp_path / "module"}"}}';;\n"""
        "*) exit 1;;\n"
        "esac\n"
    )
    go.chmod(0o755)
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "drivetrain" / "kubernetes"
    (cache / tools.cache_directory().name).mkdir(parents=True)
    added = subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.tools"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert added.returncode == 1
    assert "already built" in added.stdout
    assert "the objects of Kubernetes 1.35.4 are not those that" in added.stderr
    assert list(cache.glob("openapi/*")) == []
