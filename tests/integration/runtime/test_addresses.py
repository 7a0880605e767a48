"""On which addresses a port answers, on this machine's loopback: IPv4, IPv6, both."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from services.runtime import operations
from services.runtime.callers import ReadGuard
from services.runtime.operations import Server, operations_app, serve, server
from services.runtime.settings import Settings

IPV4, IPV6 = "127.0.0.1", "[::1]"


async def _well() -> None:
    return None


async def _caller(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the address of the caller."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["client"][0].encode()})


@asynccontextmanager
async def _served(app: operations.ASGIApp, host: str) -> AsyncIterator[Server]:
    running, stopping = server(app, host, 0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(running, stopping))
        while not running.started:
            await asyncio.sleep(0.01)
        yield running
        stopping.set()


async def _answers(running: Server, path: str = "/livez", **options: Any) -> dict[str, str]:
    """What each address of loopback answers."""
    found = {}
    async with httpx.AsyncClient(trust_env=False) as client:
        for host in (IPV4, IPV6):
            try:
                answer = await client.get(f"http://{host}:{running.port}{path}", **options)
                found[host] = f"{answer.status_code} {answer.text.strip()}"
            except httpx.ConnectError:
                found[host] = "refused"
    return found


@pytest.mark.parametrize(
    ("address", "answering"),
    [
        ("::", {IPV4, IPV6}),
        ("0.0.0.0", {IPV4}),
        ("127.0.0.1", {IPV4}),
        ("::1", {IPV6}),
    ],
)
async def test_a_probe_is_answered_on_the_addresses_of_the_setting(
    address: str, answering: set[str]
) -> None:
    async with _served(operations_app(_well, _well), address) as running:
        found = await _answers(running)
    assert found == {host: "200 ok" if host in answering else "refused" for host in (IPV4, IPV6)}


async def test_a_caller_keeps_the_address_of_its_family() -> None:
    """A list of trusted proxies names addresses of IPv4 as such, not mapped into IPv6."""
    async with _served(_caller, "::") as running:
        assert await _answers(running) == {IPV4: "200 127.0.0.1", IPV6: "200 ::1"}


async def test_a_read_port_answers_to_its_name_of_either_family() -> None:
    settings = Settings(
        kafka_bootstrap_servers="broker:9092",
        postgres_dsn="postgresql://database",
        read_token="a-token-of-the-tests",
    )
    headers = {"authorization": "Bearer a-token-of-the-tests"}
    async with _served(ReadGuard(_caller, settings), "::") as running:
        answers = await _answers(running, headers=headers)
    assert answers == {IPV4: "200 127.0.0.1", IPV6: "200 ::1"}


async def test_a_machine_without_ipv6_answers_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of this machine has it: what one without it says is put in its place."""
    create = socket.create_server

    def without_ipv6(address: Any, *, family: Any = socket.AF_INET) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return create(address, family=family)

    monkeypatch.setattr(operations.socket, "create_server", without_ipv6)
    async with _served(operations_app(_well, _well), "::") as running:
        assert await _answers(running) == {IPV4: "200 ok", IPV6: "refused"}


async def test_a_port_that_is_taken_in_one_family_is_not_served_in_the_other() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        running = server(operations_app(_well, _well), "::", taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await serve(running, asyncio.Event())
        with socket.create_server(("127.0.0.1", taken.getsockname()[1])):
            pass  # and it is free again
