"""The API server as the kubelet uses it: JSON requests, and lists kept up to date by a watch."""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

Object = dict[str, Any]
RETRY_SECONDS = 0.5
SILENCE_SECONDS = 300.0  # the server ends a watch before


class Api:
    def __init__(self, server: str, ca: Path, certificate: Path, key: Path) -> None:
        tls = ssl.create_default_context(cafile=str(ca))
        tls.load_cert_chain(certificate, key)
        self.url = httpx.URL(server)
        self._http = httpx.AsyncClient(
            base_url=server, verify=tls, trust_env=False, timeout=10.0, limits=httpx.Limits()
        )

    async def get(self, path: str) -> Object | None:
        """None where there is no such object. Raises httpx.HTTPError."""
        return await self._request("GET", path)

    async def post(self, path: str, content: Object) -> Object | None:
        """None where the object exists already."""
        answer = await self._http.post(path, json=content)
        if answer.status_code == httpx.codes.CONFLICT:
            return None
        answer.raise_for_status()
        created: Object = answer.json()
        return created

    async def patch(self, path: str, content: Object) -> Object | None:
        """A strategic merge patch. None where there is no such object, or it is another one."""
        headers = {"content-type": "application/strategic-merge-patch+json"}
        return await self._request("PATCH", path, json=content, headers=headers)

    async def delete(self, path: str, uid: str) -> None:
        """At once, if it is still this object."""
        content = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._request("DELETE", path, json=content)

    async def _request(self, method: str, path: str, **parameters: Any) -> Object | None:
        answer = await self._http.request(method, path, **parameters)
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            return None
        answer.raise_for_status()
        found: Object = answer.json()
        return found

    async def watch(self, path: str, on_change: Callable[[Mapping[str, Object]], None]) -> None:
        """Tell all objects (by uid) after each change, for ever, over outages and restarts."""
        while True:
            with suppress(httpx.HTTPError, ValueError):
                await self._list_and_follow(path, on_change)
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_follow(
        self, path: str, on_change: Callable[[Mapping[str, Object]], None]
    ) -> None:
        answer = await self._http.get(path)
        answer.raise_for_status()
        listed = answer.json()
        objects = {item["metadata"]["uid"]: item for item in listed["items"]}
        on_change(objects)
        version = listed["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "240"}
        timeout = httpx.Timeout(10.0, read=SILENCE_SECONDS)
        async with self._http.stream("GET", path, params=query, timeout=timeout) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return  # such as 410 Gone: list again
                uid = event["object"]["metadata"]["uid"]
                if event["type"] == "DELETED":
                    objects.pop(uid, None)
                else:
                    objects[uid] = event["object"]
                on_change(objects)
