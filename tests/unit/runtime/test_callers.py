"""Who may call a read port."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from services.runtime.callers import ReadGuard, is_bearer, is_own_host

TOKEN = "a-token-of-some-length"

PORT = 8480


@pytest.mark.parametrize(
    "host", ["localhost:8480", "127.0.0.1:8480", "[::1]:8480", "LOCALHOST:8480", "ml.example.org"]
)
def test_our_own_names_are_served(host: str) -> None:
    assert is_own_host((host,), PORT, ("ml.example.org",))


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param(("evil.example.com:8480",), id="a name made to point here"),
        pytest.param(("localhost",), id="a loopback name without our port"),
        pytest.param(("localhost:81",), id="a loopback name with another port"),
        pytest.param(("localhost.evil.example:8480",), id="a name that begins like ours"),
        pytest.param(("127.0.0.1.nip.io:8480",), id="an address in a foreign name"),
        pytest.param(("ml.example.org:1",), id="a configured name with a port it was not given"),
        pytest.param(("[::1]x:8480",), id="not an address"),
        pytest.param((), id="none"),
        pytest.param(("localhost:8480", "evil.example"), id="two"),
    ],
)
def test_foreign_hosts_are_refused(hosts: tuple[str, ...]) -> None:
    assert not is_own_host(hosts, PORT, ("ml.example.org",))


def test_the_default_port_needs_no_number() -> None:
    assert is_own_host(("localhost",), 80, ())


def test_only_the_whole_token_is_one() -> None:
    assert is_bearer(TOKEN, f"Bearer {TOKEN}")
    assert is_bearer(TOKEN, f"bearer  {TOKEN}")
    for other in (
        "",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
    ):
        assert not is_bearer(TOKEN, other)
    assert not is_bearer(TOKEN, "Bearer é")


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a secret"})


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"authorization": f"Bearer {TOKEN}"}),
        (401, {}),
        (401, {"authorization": "Bearer another"}),
        (401, {"cookie": f"token={TOKEN}"}),
        (421, {"authorization": f"Bearer {TOKEN}", "host": "evil.example:8000"}),
        (421, {"host": "evil.example:8000"}),
    ],
)
async def test_a_read_port_answers_its_token_under_its_own_name(
    status: int, headers: dict[str, str]
) -> None:
    settings: Any = SimpleNamespace(read_token=SecretStr(TOKEN), allowed_hosts=())
    transport = httpx.ASGITransport(app=ReadGuard(_app, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        answer = await client.get("/spend", headers=headers)
    assert answer.status_code == status
    assert ("a secret" in answer.text) == (status == 200)
