"""Secrets, ConfigMaps and tokens that a pod names, read from the API server when needed."""

import base64
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.environment import ConfigError


class Objects:
    """Of one pod's namespace."""

    def __init__(self, api: Api, pod: Mapping[str, Any]) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        self._account = pod["spec"].get("serviceAccountName") or "default"
        self._pod = {
            "kind": "Pod", "apiVersion": "v1",
            "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
        }  # fmt: skip

    async def data(self, kind: str, name: str) -> dict[str, str] | None:
        """kind: "secrets" or "configmaps". None where there is none."""
        found = await self._api.get(f"{self._path}/{kind}/{name}")
        if found is None:
            return None
        values: dict[str, str] = found.get("data") or {}
        if kind == "secrets":
            return {key: base64.b64decode(value).decode() for key, value in values.items()}
        return values

    async def token(self, audience: str | None, seconds: int) -> str:
        spec: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": self._pod}
        if audience:
            spec["audiences"] = [audience]
        path = f"{self._path}/serviceaccounts/{self._account}/token"
        made = await self._api.post(path, {"spec": spec})
        if made is None:
            raise ConfigError(f"no token for the service account {self._account}")
        return str(made["status"]["token"])
