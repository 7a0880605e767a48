"""The environment of the tools: pinned by hash, apart from ours, and it works."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.exchange import tools as exchange_tools
from tests.exchange.mlflow_server import MlflowServer, run_with_tools

pytestmark = pytest.mark.timeout(900)
NAMES = ("mlflow", "tensorboard", "openlineage-python")
READ_HISTORY = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
run = client.create_run(client.create_experiment("tools"))
client.log_metric(run.info.run_id, "loss", 0.5, timestamp=1000, step=3)
history = client.get_metric_history(run.info.run_id, "loss")
print(json.dumps([[one.step, one.value] for one in history]))
"""


def test_every_file_is_pinned_by_its_hash_and_no_index_is_named() -> None:
    lock = exchange_tools.LOCK.read_text()
    packages = re.findall(r"^([a-z0-9._-]+)==.*((?:\n +--hash=sha256:[0-9a-f]{64}.*)+)", lock, re.M)
    assert len(packages) == len(re.findall(r"^\S+==", lock, re.M))
    assert {name for name, _ in packages} >= {*NAMES, "pandas", "pyarrow"}
    assert "index" not in lock
    assert "://" not in lock


def test_none_of_them_is_in_the_default_environment() -> None:
    for module in ("mlflow", "tensorboard", "openlineage", "pandas"):
        assert importlib.util.find_spec(module) is None, module


def test_a_server_starts_and_its_client_reads_it(tools: Path, mlflow: MlflowServer) -> None:
    assert run_with_tools(tools, READ_HISTORY, mlflow.url) == [[3, 0.5]]
