"""The tools, and one MLflow server per session; skipped with the reason where they are missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exchange import tools as exchange_tools
from tests.exchange.mlflow_server import MlflowServer, running_mlflow


@pytest.fixture(scope="session")
def tools() -> Path:
    found = exchange_tools.find_tools()
    if found is None:
        pytest.skip(exchange_tools.MISSING)
    return found


@pytest.fixture(scope="session")
def mlflow(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with running_mlflow(tools, tmp_path_factory.mktemp("mlflow")) as server:
        yield server
