"""The gate before every route: host, authentication, origin, size and form of the body.

An ASGI application around another one. What it refuses is answered here as a problem and never
reaches a route. Bodies of at most 1 MiB are read whole and checked as strict JSON before the route
parses them; uploads are left to their own route, which bounds them while it streams.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser

from drivetrain_schemas import strict_json
from drivetrain_schemas.jobs import FieldError
from services.gateway.core.origins import SAFE_METHODS, Refusal, check_origin
from services.gateway.core.sessions import cookie_name, holds
from services.gateway.instruments import REQUEST_SECONDS, REQUESTS
from services.gateway.problem import Problem, invalid
from services.gateway.rest.problems import respond
from services.gateway.settings import GatewaySettings
from services.runtime import logs
from services.runtime.callers import is_bearer, is_own_host
from services.runtime.clock import Clock

log = logs.get()

MAX_BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
OPEN_PATHS = ("/static/", "/assets/")
OPEN_ROUTES = frozenset({"/login", "/openapi.json", "/favicon.ico"})
UPLOADS = frozenset({"/v1/code"})

# A route that serves what a program logged has a stricter one.
CONTENT_POLICY = "content-security-policy"
SECURITY_HEADERS = {
    CONTENT_POLICY: (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it a browser sends no origin with the forms of our own pages.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gate:
    """Wraps `app`; pages that need a session are answered by `sign_in`."""

    def __init__(
        self, app: ASGIApp, sign_in: ASGIApp, settings: GatewaySettings, clock: Clock
    ) -> None:
        self._app = app
        self._sign_in = sign_in
        self._clock = clock
        self._allowed = settings.allowed_hosts
        self._token = settings.api_token.get_secret_value()
        self._secret = settings.session_secret()
        self._cookie = cookie_name(self._secret)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        observed = _Observed(scope, send)
        try:
            await self._pass(scope, receive, observed)
        except Problem as problem:
            response = respond(problem, scope["path"])
            await response(scope, receive, observed)
        except ClientDisconnect:  # the client is gone
            log.info("request aborted by the client", path=scope["path"])

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        method, path = scope["method"], scope["path"]
        server = scope.get("server")
        port = server[1] if server else None
        hosts = tuple(headers.getlist("host"))
        if not is_own_host(hosts, port, self._allowed):
            raise _foreign_host(hosts)
        has_token = is_bearer(self._token, headers.get("authorization", ""))
        has_session = self._has_session(headers)
        refusal = check_origin(
            method,
            headers["host"].lower(),
            headers.get("origin"),
            headers.get("sec-fetch-site"),
            by_cookie=has_session and not has_token,
        )
        _refuse(403, refusal)
        if (
            not (has_token or has_session)
            and path not in OPEN_ROUTES
            and not path.startswith(OPEN_PATHS)
        ):
            if not path.startswith("/v1/") and method in SAFE_METHODS:
                await self._sign_in(scope, receive, send)
                return
            raise _not_authenticated(headers)
        _refuse_nul(path, scope["query_string"])
        if method not in SAFE_METHODS:
            _refuse_encoding(headers)
            if path not in UPLOADS:
                receive = await _checked_body(headers, path, receive)
        await self._app(scope, receive, send)

    def _has_session(self, headers: Headers) -> bool:
        # The browser sends the cookies of all programs on this host, readable or not.
        cookies = cookie_parser("; ".join(headers.getlist("cookie")))
        session = cookies.get(self._cookie)
        return session is not None and holds(self._secret, session, self._clock.now())


class _Observed:
    """Adds the security headers, and counts the answer by its route."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._started = monotonic()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                if name != CONTENT_POLICY or name not in headers:
                    headers[name] = value
            if "cache-control" not in headers:
                headers["cache-control"] = "no-store"
            route = getattr(self._scope.get("route"), "path", "none")
            method = self._scope["method"]
            known = method if method in ("GET", "HEAD", "POST") else "other"
            REQUESTS.labels(known, route, str(message["status"])).inc()
            REQUEST_SECONDS.labels(route).observe(monotonic() - self._started)
        await self._send(message)


def _foreign_host(hosts: tuple[str, ...]) -> Problem:
    named = f"{hosts[0]:.120}" if len(hosts) == 1 else f"{len(hosts)} Host headers"
    detail = f"this server does not serve {named}"
    fix = "open it under the address it printed, or add this name to DRIVETRAIN_ALLOWED_HOSTS"
    return Problem(
        421, "foreign_host", detail, (FieldError(field="Host", message=detail, fix=fix),)
    )


def _refuse(status: int, refusal: Refusal | None) -> None:
    if refusal is not None:
        error = FieldError(field="(request)", message=refusal.detail, fix=refusal.fix)
        raise Problem(status, refusal.code, refusal.detail, (error,))


def _not_authenticated(headers: Headers) -> Problem:
    detail = "the token is invalid" if "authorization" in headers else "the request has no token"
    fix = "send 'Authorization: Bearer TOKEN'; the token is in connection.json of the platform"
    return Problem(
        401,
        "not_authenticated",
        detail,
        (FieldError(field="Authorization", message=detail, fix=fix),),
        {"WWW-Authenticate": "Bearer"},
    )


def _refuse_nul(path: str, query: bytes) -> None:
    """Postgres cannot hold it, so no text that somebody looks for contains it."""
    if "\0" in path:
        raise invalid("(path)", "has a NUL character", "leave it out")
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if "\0" in name or "\0" in value:
            raise invalid(name.replace("\0", "?")[:80], "has a NUL character", "leave it out")


def _refuse_encoding(headers: Headers) -> None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        message = f"the content encoding {encoding[:40]} is not supported"
        error = FieldError(field="Content-Encoding", message=message, fix="send it uncompressed")
        raise Problem(
            415, "unsupported_media_type", message, (error,), {"Accept-Encoding": "identity"}
        )


async def _checked_body(headers: Headers, path: str, receive: Receive) -> Receive:
    """The whole body, passed on to the route: strict JSON, or the form of a page."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(headers, receive)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_SECONDS:g} s"
        raise Problem(408, "request_timeout", detail, headers={"Connection": "close"}) from None
    if body and not (_is_form(headers) and not path.startswith("/v1/")):
        _check_json(headers, body)
    is_given = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _read(headers: Headers, receive: Receive) -> bytes:
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:18]) > MAX_BODY_BYTES:
        raise _too_large()
    parts: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        num_bytes += len(parts[-1])
        if num_bytes > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return b"".join(parts)


def _is_form(headers: Headers) -> bool:
    """Pages send forms, which any site could send: `check_origin` refuses those of others."""
    content_type = headers.get("content-type", "").split(";")[0].strip().lower()
    return content_type == "application/x-www-form-urlencoded"


def _check_json(headers: Headers, body: bytes) -> None:
    content_type = headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type != "application/json":
        message = f"{content_type[:80] or 'a body without a content type'} is not supported"
        fix = "send JSON as application/json; the command line turns YAML into JSON"
        error = FieldError(field="Content-Type", message=message, fix=fix)
        raise Problem(415, "unsupported_media_type", message, (error,))
    try:
        strict_json.loads(body)
    except strict_json.InvalidJson as error:
        detail = FieldError(field="(body)", message=str(error)[:512], fix="send one JSON object")
        raise Problem(400, "malformed_json", str(error)[:512], (detail,)) from error


def _too_large() -> Problem:
    message = f"the body is larger than {MAX_BODY_BYTES:,} bytes"
    fix = "upload files with POST /v1/code and name them in the spec"
    return Problem(
        413, "too_large", message, (FieldError(field="(body)", message=message, fix=fix),)
    )
