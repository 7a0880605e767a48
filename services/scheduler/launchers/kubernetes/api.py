"""Calls of the Kubernetes API: JSON in, JSON out, each with a time limit, a bounded number at once.

Objects stay what the API server sends, because the client library's models of every pod cost much.
`Refused` is an answer; `LauncherUnavailable` means that nothing is known, and the same call may
succeed later.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config.config_exception import ConfigException

from services.scheduler import instruments
from services.scheduler.launchers.base import LauncherUnavailable
from services.scheduler.launchers.kubernetes.refusals import is_webhooks

CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
MAX_CALLS = 32
PAGE = 500
_CONFLICT = 409
_NOT_FOUND = 404
_GONE = 410
_TRANSIENT = frozenset({408, 429})

Object = Mapping[str, Any]


class Refused(Exception):
    """The API server answered with an error that is about this call."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code = code
        self.status = status

    @property
    def already_exists(self) -> bool:
        """There is an object of this name; a webhook that denies with 409 gives no reason."""
        return self.code == _CONFLICT and self.status.get("reason") == "AlreadyExists"

    @property
    def is_not_found(self) -> bool:
        return self.code == _NOT_FOUND

    @property
    def is_expired(self) -> bool:
        """The version to continue from is too old: list again."""
        return self.code == _GONE


class Api:
    """The API server that the service account of this pod belongs to, or else KUBECONFIG's."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = configuration
        self._connected: ApiClient | None = None
        self._connecting = asyncio.Lock()
        self._calls = asyncio.Semaphore(MAX_CALLS)

    async def close(self) -> None:
        client, self._connected = self._connected, None
        if client is not None:
            await client.close()

    async def create(self, path: str, manifest: Object) -> Object:
        return await self._call("POST", path, body=manifest)

    async def get(self, path: str) -> Object | None:
        try:
            return await self._call("GET", path)
        except Refused as refused:
            if refused.is_not_found:
                return None
            raise

    async def patch(self, path: str, patch: Object) -> bool:
        """A merge patch. False where there is no such object."""
        return await self._if_found("PATCH", path, patch)

    async def delete(self, path: str, uid: str, grace_seconds: int) -> bool:
        """False where there is no such object. Refused where another one has that name."""
        assert grace_seconds > 0, "0 removes a pod from the API server while it may still run"
        wanted = {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": uid}}
        return await self._if_found("DELETE", path, wanted)

    async def list(self, path: str, query: Mapping[str, str]) -> tuple[Sequence[Object], str]:
        """All objects as of one moment, and the version to watch from."""
        items: list[Object] = []
        page: dict[str, str] = {}
        while True:
            found = await self._call("GET", path, query={**query, "limit": str(PAGE), **page})
            items += found.get("items") or ()
            metadata = found["metadata"]
            if not metadata.get("continue"):
                return items, metadata["resourceVersion"]
            page = {"continue": metadata["continue"]}

    async def watch(
        self, path: str, query: Mapping[str, str], version: str, seconds: int
    ) -> AsyncGenerator[Object, None]:
        """Changes since `version`, for about so many seconds; a bookmark of it when the watch is
        open. Raises LauncherUnavailable, Refused (`is_expired`)."""
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        limit = aiohttp.ClientTimeout(total=seconds + CALL_SECONDS, sock_connect=CONNECT_SECONDS)
        with _unavailable():
            response = await self._request("GET", path, asked, None, limit)
            try:
                await _check(response)
                yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
                while line := await response.content.readline():
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise Refused(change["object"].get("code", 0), change["object"])
                    yield change
            finally:
                response.close()

    async def _if_found(self, method: str, path: str, body: Object) -> bool:
        try:
            await self._call(method, path, body=body)
        except Refused as refused:
            if refused.is_not_found:
                return False
            raise
        return True

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object:
        limit = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._calls:
            with _unavailable():
                response = await self._request(method, path, query or {}, body, limit)
                async with response:
                    await _check(response)
                    found: Object = json.loads(await response.read())
                    return found

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        client = await self._client()
        is_patch = method == "PATCH"
        kind = "application/merge-patch+json" if is_patch else "application/json"
        code = "none"
        try:
            response: aiohttp.ClientResponse = await client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limit,
            )
            code = str(response.status)
            return response
        finally:
            verb = "WATCH" if "watch" in query else method
            instruments.KUBERNETES_CALLS.labels(verb, _resource(path), code).inc()

    async def _client(self) -> ApiClient:
        async with self._connecting:
            if self._connected is None:
                if self._configuration is None:
                    self._configuration = await _configured()
                self._connected = ApiClient(self._configuration)
            return self._connected


async def _configured() -> Configuration:
    configuration = Configuration()
    try:
        load_in_cluster: Any = config.load_incluster_config
        load_in_cluster(client_configuration=configuration)
    except ConfigException:
        await config.load_kube_config(client_configuration=configuration)
    return configuration


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raises Refused, or LauncherUnavailable where the server has trouble of its own."""
    code = response.status
    if 200 <= code < 300:
        return
    content = await response.read()
    try:
        status = json.loads(content)
    except ValueError:
        status = {"message": content[:200].decode("utf-8", "replace")}
    refused = Refused(code, status if isinstance(status, dict) else {})
    if (code >= 500 and not is_webhooks(refused.status)) or code in _TRANSIENT:
        raise LauncherUnavailable(f"the Kubernetes API server has trouble: {refused}")
    raise refused


@contextmanager
def _unavailable() -> Iterator[None]:
    """What a network, a proxy or a wrong kubeconfig makes of a call."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ConfigException) as error:
        why = f"{type(error).__name__}: {error}"
        raise LauncherUnavailable(f"the Kubernetes API server does not answer: {why}") from error


def _resource(path: str) -> str:
    """pods, secrets, services or nodes: never a name."""
    parts = path.split("/")
    return parts[5] if len(parts) > 5 else parts[-1]
