"""Requests to the gateway, and its responses as values or as errors with an exit code.

Requests are retried a few times if there is no response, unless the gateway asks for a longer
pause: each is safe to repeat, because a submission carries its request id and all others are
idempotent. A submission is retried for longer, because it may have been received already.
"""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from drivetrain.cli.connection import START_FIX, Connection, is_this_machine
from drivetrain.cli.errors import CliError, NoAnswer, NotFound, Refused, Unreachable, field_problems
from drivetrain.cli.output import write_note

TRIES = 4
BACKOFF_SECONDS = 0.25
# The broker or the gateway may be restarting.
SUBMIT_SECONDS = 60.0
SUBMIT_PAUSE_SECONDS = 2.0
# A longer Retry-After is reported at once instead of waiting.
MAX_PAUSE_SECONDS = 5
PAGE_ITEMS = 100
# A command waits up to 2 s for the scheduler's reply, an upload for the disk.
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
MODEL_AGE = "Drivetrain-Model-Age-Seconds"
STALE_SECONDS = 5
_UNAVAILABLE = (502, 503, 504)

Query = Mapping[str, str | int | float | Sequence[str] | None]


class Gateway:
    """One platform. Use it as a context manager."""

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = connection.url
        self._model_age_seconds = 0
        self._client = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.token}"},
            timeout=TIMEOUT,
            transport=transport,
            # The environment's proxy is for other machines and cannot reach this one's ports.
            trust_env=not is_this_machine(connection.url),
        )

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()
        if kind is None and self._model_age_seconds >= STALE_SECONDS:
            write_note(
                f"This is the platform as it was {self._model_age_seconds} s ago: "
                "it has not read all events yet."
            )

    def get(self, path: str, query: Query | None = None, *, tries: int = TRIES) -> Any:
        params = {name: value for name, value in (query or {}).items() if value is not None}
        return self._answer(self._client.build_request("GET", path, params=params), tries)

    def download(self, path: str, query: Query) -> Iterator[bytes]:
        """The content at this path, in pieces. Not retried: the caller may begin again."""
        params = {name: value for name, value in query.items() if value is not None}
        try:
            with self._client.stream("GET", path, params=params) as response:
                if not response.is_success:
                    response.read()
                    _value(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            message = f"{self.url}: the download broke off: {error or type(error).__name__}"
            raise NoAnswer(message, fix="download it again") from error

    def pages(self, path: str, name: str, query: Query | None = None) -> Iterator[Any]:
        """The items of a list, page after page; `name` is the field that holds them.

        A page of a search may be empty and have a next one.
        """
        after: str | None = None
        while True:
            page = self.get(path, {**(query or {}), "limit": PAGE_ITEMS, "after": after})
            yield from page[name]
            before, after = after, page.get("next")
            if after is None or after == before:
                return

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._answer(self._client.build_request("POST", path, json=dict(body or {})), TRIES)

    def submit(self, path: str, request_id: str, spec: Mapping[str, Any], **more: Any) -> Any:
        """Post a job or a study, with the same request id until there is a reply or time is up."""
        body = {"request_id": request_id, "spec": spec, **more}
        until = time.monotonic() + SUBMIT_SECONDS
        may_be_received = False
        while True:
            try:
                return self.post(path, body)
            except Unreachable as error:
                may_be_received = may_be_received or isinstance(error, NoAnswer)
                if not may_be_received:
                    raise
                if time.monotonic() >= until:
                    fix = f"submit again with --request-id {request_id}: it can never run twice"
                    raise NoAnswer(error.message, fix=fix) from error
                write_note(f"no reply yet ({error.message}); retrying with request id {request_id}")
                time.sleep(SUBMIT_PAUSE_SECONDS)

    def upload(self, path: str, content: bytes) -> Any:
        headers = {"Content-Type": "application/gzip"}
        request = self._client.build_request("POST", path, content=content, headers=headers)
        return self._answer(request, TRIES)

    def _answer(self, request: httpx.Request, tries: int) -> Any:
        for remaining in reversed(range(tries)):
            try:
                response = self._client.send(request)
                self._model_age_seconds = _model_age(response)
                if not (remaining and _is_to_be_retried(response)):
                    return _value(response)
            except httpx.TransportError as error:
                if not remaining:
                    is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                    kind = Unreachable if is_unsent else NoAnswer
                    message = f"{self.url} does not respond: {error or type(error).__name__}"
                    raise kind(message, fix=START_FIX) from error
            waited = tries - remaining
            time.sleep(BACKOFF_SECONDS * waited * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")


def _is_to_be_retried(response: httpx.Response) -> bool:
    is_away = response.status_code in _UNAVAILABLE
    return is_away and _seconds(response, "Retry-After") <= MAX_PAUSE_SECONDS


def _model_age(response: httpx.Response) -> int:
    """How far the gateway's read model is behind the events."""
    return _seconds(response, MODEL_AGE)


def _seconds(response: httpx.Response, header: str) -> int:
    """0 where the header is missing."""
    text = response.headers.get(header, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _value(response: httpx.Response) -> Any:
    try:
        value = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        value = None
    if response.is_success and value is not None:
        return value
    raise _error(response.status_code, value if isinstance(value, dict) else {})


def _error(status: int, problem: Mapping[str, Any]) -> CliError:
    """An error from an RFC 9457 problem, or from the bare status of something else."""
    title = str(problem.get("detail") or problem.get("title") or "")
    if status == 404:
        return NotFound(title or "not found")
    if status in (401, 403):
        fix = "check DRIVETRAIN_TOKEN; of one machine it is in connection.json of its home"
        return Refused(title or "the platform does not accept the token", fix=fix)
    if status < 400 or status >= 500:
        message = title or f"the answer ({status}) does not come from a Drivetrain gateway"
        kind = NoAnswer if status in _UNAVAILABLE else Unreachable
        fix = "try again in a moment; the platform's logs have the cause"
        return kind(message, fix=fix if problem else "check the address, and the platform's logs")
    problems = field_problems(problem.get("errors"))
    message = title or f"the platform refused ({status})"
    # The detail of an invalid request repeats the messages of its fields: each is said once.
    if problems and all(one.message in message for one in problems):
        if len(problems) == 1:
            return Refused(message, fix=problems[0].fix)
        message = str(problem.get("title") or "the request is invalid")
    return Refused(message, problems=problems)
