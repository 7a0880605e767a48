"""Keeps the windows process running: `python -m services.metrics.windows`, a child of this service.

A child, not a deployment of its own: it has this service's settings, Kafka user and rights, and
nothing else needs it. Without it live windows stand still and everything else goes on. It ends with
this process, because its input does. After an end it is started again, later each time.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping

from pydantic import SecretStr

from services.metrics.instruments import WINDOWS_ENDS, WINDOWS_RUNNING
from services.metrics.settings import MetricsSettings
from services.runtime import logs
from services.runtime.service import Platform
from services.runtime.settings import PREFIX, Settings

log = logs.get()

COMMAND = (sys.executable, "-m", "services.metrics.windows")
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 60.0
# After so long a run the next wait is the first one again.
GOOD_SECONDS = 300.0
STOP_SECONDS = 5.0


async def run_windows(platform: Platform) -> None:
    """Until cancelled; the process is then ended."""
    assert isinstance(platform.settings, MetricsSettings)
    environment = environment_of(platform.settings, os.environ)
    wait_seconds = FIRST_WAIT_SECONDS
    while True:
        started_at = platform.clock.monotonic()
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=asyncio.subprocess.PIPE, env=environment
        )
        WINDOWS_RUNNING.set(1)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        finally:
            WINDOWS_RUNNING.set(0)
        WINDOWS_ENDS.inc()
        if platform.clock.monotonic() - started_at > GOOD_SECONDS:
            wait_seconds = FIRST_WAIT_SECONDS
        log.warning("windows process ended", code=code, starts_in_seconds=wait_seconds)
        await platform.clock.sleep(wait_seconds)
        wait_seconds = min(2 * wait_seconds, MAX_WAIT_SECONDS)


def environment_of(settings: Settings, outer: Mapping[str, str]) -> dict[str, str]:
    """The variables that give a child process these settings."""
    variables = {name: text for name, text in outer.items() if not name.startswith(PREFIX)}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            variables[PREFIX + name.upper()] = value.get_secret_value()
        elif isinstance(value, list | tuple | dict):
            variables[PREFIX + name.upper()] = json.dumps(value)
        elif value is not None:
            variables[PREFIX + name.upper()] = str(value)
    return variables


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
