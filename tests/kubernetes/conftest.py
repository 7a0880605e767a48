"""A real Kubernetes control plane, once per session; skipped with the reason if it is not built."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.package import ORDER, package
from tests.kubernetes import tools
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane, running_control_plane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    built = tools.find_tools()
    if built is None:
        pytest.skip(tools.MISSING)
    with running_control_plane(built, tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """A namespace of the test's own. It stays: to delete one takes 10 s."""
    return control_plane.create_namespace(f"t{secrets.token_hex(4)}")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    built = tools.find_tools()
    if built is None:
        pytest.skip(tools.MISSING)
    return Helm(built, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def earlier(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same charts, as an earlier version."""
    directory = tmp_path_factory.mktemp("earlier")
    packages = package(directory, str(helm.tools / "helm"), version="0.0.9")
    return dict(zip(ORDER, packages, strict=True))
