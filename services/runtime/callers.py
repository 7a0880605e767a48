"""Who may call a service's HTTP port: a bearer token, and a Host header that names this server.

The Host check keeps a web page from reading the port through a name of its own that resolves to
this machine (DNS rebinding). `ReadGuard` makes both checks for a read port, whose only caller is
the gateway. The gateway, which people call, checks its own callers with the same two functions.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from services.runtime.instruments import HTTP_REFUSED
from services.runtime.operations import ASGIApp
from services.runtime.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def is_own_host(hosts: tuple[str, ...], port: int | None, allowed: Collection[str]) -> bool:
    """Exactly one Host header: a configured name, or a loopback name with the port called."""
    if len(hosts) != 1:
        return False
    host = hosts[0].lower()
    if host in {name.lower() for name in allowed}:
        return True
    name, separator, port_text = host.rpartition(":")
    if not separator or host.endswith("]"):
        name, port_text = host, "80"
    return name in LOOPBACK_NAMES and port_text == str(port)


def is_bearer(token: str, authorization: str) -> bool:
    """True for `Bearer TOKEN`, compared in constant time."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(), token.encode())


class ReadGuard:
    """Lets requests through to `app` that carry the read token and name this server."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        assert settings.read_token is not None
        self._app = app
        self._token = settings.read_token.get_secret_value()
        self._allowed = settings.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        server = scope.get("server")
        if not is_own_host(_values(scope, b"host"), server[1] if server else None, self._allowed):
            await _refuse(send, 421, "foreign_host", "the Host header does not name this server")
        elif not any(is_bearer(self._token, one) for one in _values(scope, b"authorization")):
            detail = "a valid read token is required (DRIVETRAIN_READ_TOKEN)"
            await _refuse(send, 401, "not_authenticated", detail)
        else:
            await self._app(scope, receive, send)


def _values(scope: Scope, name: bytes) -> tuple[str, ...]:
    return tuple(value.decode("latin-1") for key, value in scope["headers"] if key == name)


async def _refuse(send: Send, status: int, code: str, detail: str) -> None:
    HTTP_REFUSED.labels(code).inc()
    titles = {401: "Authentication required", 421: "Misdirected request"}
    document = {"title": titles[status], "status": status, "detail": detail, "code": code}
    body = json.dumps(document).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
