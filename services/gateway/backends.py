"""Reads that other services answer over their own tables: metrics (samples, logs), cost (spend),
hpo (what a search does next) and scheduler (positions in the queue).

Two seconds and eight megabytes at most; a service that does not answer within them is reported as
unavailable.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NoReturn

import httpx

from drivetrain_schemas.jobs import FieldError
from services.gateway.instruments import PARTS_UNAVAILABLE
from services.runtime import logs

log = logs.get()

LIMIT_SECONDS = 2.0
STREAM_SECONDS = 30.0  # for each part of a long answer
MAX_BYTES = 8 * 1024 * 1024
# The read token or the address is wrong: for operators to fix, not the caller's mistake.
_MISCONFIGURED = {
    401: "it refuses the gateway's read token",
    421: "it does not know the address by which the gateway asks",
}
# Why a service cannot answer, by the code of its 503: its own words may name addresses.
_REASONS = {
    "store_unavailable": "older data is in the object store, which cannot be read now",
    "too_many_reads": "it reads for too many others at the moment",
}

Parameters = Mapping[str, str | int | float | Sequence[str] | None]


class PartUnavailable(Exception):
    """The service behind this part of the answer is unavailable; `why` is known if it said so.

    `is_silent`: the whole time limit was waited for its answer.
    """

    def __init__(self, part: str, why: str | None = None, *, is_silent: bool = False) -> None:
        super().__init__(part)
        self.part = part
        self.why = why
        self.is_silent = is_silent


class PartRefused(Exception):
    """The service refused the request; `detail` is its reason, `errors` name the fields."""

    def __init__(self, status: int, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)


class Backends:
    """The read ports of other services, by the service's name."""

    def __init__(
        self,
        urls: Mapping[str, str | None],
        read_token: str | None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._urls = urls
        # Loopback and cluster addresses must never go through a proxy of the environment.
        self._client = httpx.AsyncClient(
            timeout=LIMIT_SECONDS,
            transport=transport,
            headers={"Authorization": f"Bearer {read_token}"} if read_token else {},
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=8),
        )

    async def get(self, part: str, path: str, parameters: Parameters | None = None) -> Any:
        """The JSON answer. Raises PartUnavailable or PartRefused."""
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        return await self._answer(part, "GET", path, params=given)

    async def ask(self, part: str, path: str, question: Mapping[str, Any]) -> Any:
        """The JSON answer to a question that is too long for an address; nothing is changed."""
        return await self._answer(part, "POST", path, json=dict(question))

    async def _answer(self, part: str, method: str, path: str, **content: Any) -> Any:
        base = self._urls[part]
        if base is None:
            raise PartUnavailable(part)
        why = None
        try:
            response = await self._request(method, base.rstrip("/") + path, **content)
            is_useless = response.status_code >= 500 or response.status_code in _MISCONFIGURED
            if len(response.content) > MAX_BYTES or is_useless:
                why = _reason(response)
                raise ValueError(f"status {response.status_code}, {len(response.content)} bytes")
            answer = response.json()
        except (httpx.HTTPError, ValueError) as error:
            PARTS_UNAVAILABLE.labels(part).inc()
            log.warning("part unavailable", part=part, path=path, error=repr(error))
            is_silent = isinstance(error, httpx.TimeoutException)
            raise PartUnavailable(part, why, is_silent=is_silent) from error
        if response.is_error:
            _raise_refusal(response)
        return answer

    async def _request(self, method: str, address: str, **content: Any) -> httpx.Response:
        """Once more where the connection ends without an answer: a server closes a kept one at the
        moment in which it is used again, and reads may be repeated."""
        try:
            return await self._client.request(method, address, **content)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await self._client.request(method, address, **content)

    async def lines(
        self, part: str, path: str, parameters: Parameters
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON documents of a long answer, one by one; each within STREAM_SECONDS.

        Raises PartUnavailable, also after some of them, and PartRefused.
        """
        base = self._urls[part]
        if base is None:
            raise PartUnavailable(part)
        given = {name: value for name, value in parameters.items() if value is not None}
        address = base.rstrip("/") + path
        why = None
        try:
            async with self._client.stream(
                "GET", address, params=given, timeout=STREAM_SECONDS
            ) as response:
                if response.is_error:
                    await response.aread()
                    why = _reason(response)
                    _raise_refusal(response)
                async for line in response.aiter_lines():
                    yield json.loads(line)
        except (httpx.HTTPError, ValueError) as error:
            PARTS_UNAVAILABLE.labels(part).inc()
            log.warning("part unavailable", part=part, path=path, error=repr(error))
            raise PartUnavailable(part, why) from error

    async def close(self) -> None:
        await self._client.aclose()


def _reason(response: httpx.Response) -> str | None:
    """Raises ValueError where the answer is no JSON."""
    if response.status_code != 503:
        failed = f"it answered {response.status_code}" if response.status_code >= 500 else None
        return _MISCONFIGURED.get(response.status_code, failed)
    answer = response.json()
    return _REASONS.get(str(answer.get("code"))) if isinstance(answer, dict) else None


def _raise_refusal(response: httpx.Response) -> NoReturn:
    if response.status_code >= 500 or response.status_code in _MISCONFIGURED:
        raise ValueError(f"status {response.status_code}")
    answer = response.json()
    known = answer if isinstance(answer, dict) else {}
    detail = str(known.get("detail") or "the request was refused")
    errors = [FieldError.model_validate(error) for error in known.get("errors") or ()]
    raise PartRefused(response.status_code, detail, errors)
