"""One call of an address that is not trusted: only public addresses or allowed networks, checked at
each connection; no redirects; little of its answer is read."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

import httpcore

from services.metrics.core.webhooks import Networks, refusal_of

# An answer within it is read to its end, so that the connection can be used again.
MAX_READ_BYTES = 64 * 1024
READ_SECONDS = 1.0


class NotCalled(Exception):
    """The name has no address that may be called."""


# What a call may end with, besides an answer.
FAILURES = (
    NotCalled,
    OSError,
    TimeoutError,
    ssl.SSLError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
)


def connections(networks: Networks) -> httpcore.AsyncConnectionPool:
    """At most one connection, which is kept for further calls."""
    return httpcore.AsyncConnectionPool(
        network_backend=_CheckedNetwork(networks), max_connections=1, keepalive_expiry=30.0
    )


async def post(
    pool: httpcore.AsyncConnectionPool, url: str, headers: Mapping[str, str], body: bytes
) -> int:
    """The status of the answer. Raises one of FAILURES."""
    async with pool.stream("POST", url, headers=list(headers.items()), content=body) as response:
        with contextlib.suppress(*FAILURES):
            async with asyncio.timeout(READ_SECONDS):
                await _read(response)
        return response.status


async def _read(response: httpcore.Response) -> None:
    num_bytes = 0
    async for part in response.aiter_stream():
        num_bytes += len(part)
        if num_bytes > MAX_READ_BYTES:
            return


class _CheckedNetwork(httpcore.AnyIOBackend):
    """Connects only to addresses that may be called; the name is resolved once, here, so it cannot
    mean another address when the connection is made."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, proto=6)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        refusals = [refusal_of(address, self._networks) for address in addresses]
        allowed = [address for address, why in zip(addresses, refusals, strict=True) if why is None]
        if not allowed:
            raise NotCalled("; ".join(why for why in refusals if why) or f"{host} has no address")
        return await super().connect_tcp(allowed[0], port, *args, **options)
