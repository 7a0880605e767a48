"""Starts the ranks of a script as torchrun does, and waits for them.

They are forked from one process that has imported torch (`warm_scripts`), so a script starts in no
time.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Ended:
    exit_codes: tuple[int, ...]
    output: str


def train(script: str, directory: Path, world_size: int = 1, **variables: object) -> Ended:
    """Run all ranks of a local run in `directory` to their end."""
    log = directory / "log"
    before = log.stat().st_size if log.exists() else 0
    exit_codes = run_ranks(SCRIPTS / script, directory, variables, world_size)
    return Ended(exit_codes, log.read_bytes()[before:].decode())


def run_ranks(
    script: Path,
    directory: Path,
    variables: Mapping[str, object],
    world_size: int = 1,
    arguments: Sequence[str] = (),
) -> tuple[int, ...]:
    """The exit codes of all ranks; their output is added to `directory`/log."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared: dict[str, object] = {
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    environments = [
        {name: str(value) for name, value in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        for rank in range(world_size)
    ]
    request = {
        "script": str(script),
        "directory": str(directory),
        "arguments": list(arguments),
        "environments": environments,
    }
    process = _warm()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(request), file=process.stdin, flush=True)
    return tuple(json.loads(process.stdout.readline()))


@cache
def _warm() -> subprocess.Popen[str]:
    """It ends with this process, at the end of its input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.trainer.warm_scripts"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )
