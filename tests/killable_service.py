"""A service as a process that can be killed, and is started again whenever it ends."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class KillableService:
    """Of `python -m module`, with settings from `environment`."""

    def __init__(self, module: str, environment: dict[str, str], log: Path) -> None:
        self._module = module
        self._environment = environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", self._module), env=self._environment, stdout=log
                )
            await self._process.wait()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@asynccontextmanager
async def killable_service(
    module: str, settings: Mapping[str, Any], log: Path
) -> AsyncIterator[KillableService]:
    """`settings` by the names of their fields."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    given = {f"DRIVETRAIN_{name.upper()}": str(value) for name, value in settings.items()}
    service = KillableService(module, kept | given, log)
    running = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        running.cancel()
        service.kill()
