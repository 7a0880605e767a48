"""Requests to a server that may be away for hours: asked again, with growing pauses, up to a bound.

Only for requests that are safe to repeat.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from drivetrain.cli.connection import is_this_machine
from drivetrain.cli.errors import NoAnswer
from drivetrain.cli.output import write_note

TIMEOUT = httpx.Timeout(60.0, connect=10.0)
# Before its first answer the address may be wrong; after it, the server is only away.
FIRST_SECONDS = 10.0
AWAY_SECONDS = 2 * 3600.0
MAX_PAUSE_SECONDS = 60.0
NOTED_PAUSE_SECONDS = 8.0
_AWAY = (429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and what it is called in messages."""

    name: str
    url: str
    headers: dict[str, str]
    auth: httpx.BasicAuth | None = None


class PatientClient:
    """Use `close` at the end."""

    def __init__(
        self,
        server: Server,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = server
        self._sleep = sleep
        self._has_answered = False
        self._client = httpx.Client(
            base_url=server.url,
            headers=server.headers,
            auth=server.auth,
            timeout=TIMEOUT,
            transport=transport,
            trust_env=not is_this_machine(server.url),
        )

    def close(self) -> None:
        self._client.close()

    def request(
        self, method: str, path: str, file: Path | None = None, **content: Any
    ) -> httpx.Response:
        """The response, of any status but those of a server that is away. Raises NoAnswer."""
        waited, pause = 0.0, 0.5
        while True:
            found = self._try(method, path, file, content)
            if isinstance(found, httpx.Response):
                return found
            if waited >= (AWAY_SECONDS if self._has_answered else FIRST_SECONDS):
                message = f"{self._server.name} at {self._server.url} {found}"
                raise NoAnswer(message, fix="check the address, and export again: it goes on")
            pause = min(MAX_PAUSE_SECONDS, 2 * pause)
            if pause >= NOTED_PAUSE_SECONDS:
                write_note(f"{self._server.name} {found}; trying again in {pause:.0f} s")
            self._sleep(pause * random.uniform(0.75, 1.25))
            waited += pause

    def _try(
        self, method: str, path: str, file: Path | None, content: dict[str, Any]
    ) -> httpx.Response | str:
        """The response, or what is wrong for now."""
        try:
            if file is None:
                response = self._client.request(method, path, **content)
            else:
                with file.open("rb") as opened:
                    response = self._client.request(method, path, content=opened)
        except httpx.TransportError as error:
            return f"does not answer: {error or type(error).__name__}"
        if response.status_code in _AWAY:
            said = " ".join(response.text.split())
            return f"answered {response.status_code}: {said:.300}"
        self._has_answered = True
        return response
