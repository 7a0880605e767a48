"""MLflow as a peer: its server on the same Postgres, and clients that log to it.

Installed apart by `make exchange-tools`; where it is not, the rows that need it are left out.
"""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from tests.exchange.mlflow_server import run_with_tools, running_mlflow
from tests.exchange.tools import find_tools

NUM_CLIENTS = 4
SAMPLES_PER_BATCH = 1000
# Each client logs to a run of its own; prints the seconds of all together.
_CLIENTS = """
import json, sys, time
from concurrent.futures import ProcessPoolExecutor
from mlflow import MlflowClient
from mlflow.entities import Metric

def log(url, num_batches, size):
    client = MlflowClient(url)
    run = client.create_run("0").info.run_id
    started = time.time()
    for first in range(0, num_batches * size, size):
        steps = range(first, first + size)
        metrics = [Metric("loss", 1 / (step + 1), step, step) for step in steps]
        client.log_batch(run, metrics=metrics)
    return started, time.time()

if __name__ == "__main__":
    url, (num_clients, num_batches, size) = sys.argv[1], map(int, sys.argv[2:])
    with ProcessPoolExecutor(num_clients) as clients:
        waiting = [clients.submit(log, url, num_batches, size) for _ in range(num_clients)]
        spans = [one.result() for one in waiting]
    print(json.dumps(max(end for _, end in spans) - min(start for start, _ in spans)))
"""


def remark() -> str:
    """What a result says whose rows of MLflow are left out."""
    return "" if find_tools() else "Without the rows of MLflow, which was not installed."


async def backend_store(dsn: str) -> str:
    """A database of its own on this server, as MLflow names it."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("create database mlflow")
    await connection.close()
    return urlsplit(dsn)._replace(scheme="postgresql+psycopg2", path="/mlflow").geturl()


async def points_per_second(dsn: str, folder: Path, num_batches: int) -> float:
    """Of four clients that log batches of 1,000 over HTTP."""
    tools = find_tools()
    assert tools is not None
    with running_mlflow(tools, folder, await backend_store(dsn)) as server:
        given = (server.url, str(NUM_CLIENTS), str(num_batches), str(SAMPLES_PER_BATCH))
        seconds = await asyncio.to_thread(run_with_tools, tools, _CLIENTS, *given)
    return NUM_CLIENTS * num_batches * SAMPLES_PER_BATCH / float(seconds)
