"""An MLflow server, by its REST API: its own client would bring a hundred packages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from drivetrain.cli.errors import InvalidInput, Refused
from drivetrain.cli.exchange.patient import PatientClient, Server

API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


class MlflowServer:
    """One server. `variables`: MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD, as its client."""

    def __init__(
        self,
        url: str,
        variables: Mapping[str, str],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = _checked(url)
        token = variables.get("MLFLOW_TRACKING_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        server = Server("MLflow", self.url, headers, _auth(variables))
        self._client = PatientClient(server, transport)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, query: Mapping[str, Any]) -> Any:
        """The answer; None where there is no such thing."""
        return self._value(self._client.request("GET", API + path, params=dict(query)))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer; None where such a thing exists already, or what it is about does not."""
        return self._value(self._client.request("POST", API + path, json=dict(body)))

    def upload(self, path: str, file: Path) -> None:
        response = self._client.request("PUT", f"{ARTIFACTS}/{quote(path)}", file)
        if not response.is_success:
            self._value(response)

    def _value(self, response: httpx.Response) -> Any:
        try:
            value = response.json()
        except ValueError:
            value = None
        if response.is_success and isinstance(value, dict):
            return value
        known = value if isinstance(value, dict) else {}
        if known.get("error_code") in ("RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"):
            return None
        if response.status_code in (401, 403):
            fix = (
                "set MLFLOW_TRACKING_TOKEN, "
                "or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
            said = " ".join(str(known.get("message") or response.text).split())
            message = f"MLflow at {self.url} does not accept the credentials, or what they may do"
            raise Refused(f"{message} ({response.status_code}): {said:.300}", fix=fix)
        if detail := known.get("message"):
            raise Refused(f"MLflow refused: {str(detail)[:500]}")
        message = f"the answer ({response.status_code}) of {self.url} does not come from MLflow"
        raise Refused(message, fix="give the address of an MLflow server")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fix = "start one on your store: mlflow server --backend-store-uri ..."
        raise InvalidInput(f"{url!r:.100} is not the address of an MLflow server", fix=fix)
    return url.rstrip("/")


def _auth(variables: Mapping[str, str]) -> httpx.BasicAuth | None:
    if username := variables.get("MLFLOW_TRACKING_USERNAME"):
        return httpx.BasicAuth(username, variables.get("MLFLOW_TRACKING_PASSWORD", ""))
    return None
