"""Reads webhooks from their YAML file. Raises ConfigurationError with the field and the fix."""

from collections.abc import Collection, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from drivetrain_schemas.silences import AlertName
from services.metrics.core.webhooks import Networks, Webhook
from services.metrics.settings import MetricsSettings
from services.runtime.errors import ConfigurationError
from services.runtime.yaml_file import read_yaml

EventType = Literal[
    "alert.raised",
    "alert.cleared",
    "checkpointing.failed",
    "checkpointing.recovered",
    "budget.reached",
    "budget.released",
]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    url: Annotated[str, Field(max_length=2000)]
    secret_variable: str | None = None
    tenants: frozenset[str] = frozenset()
    events: frozenset[EventType] = frozenset()
    alerts: frozenset[AlertName] = frozenset()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    webhooks: Annotated[list[_Entry], Field(max_length=32)]


def read_webhooks(settings: MetricsSettings, environment: Mapping[str, str]) -> tuple[Webhook, ...]:
    """The checked webhooks; none without a file."""
    path = settings.webhooks
    if path is None:
        return ()
    entries = _read(path)
    names = [entry.name for entry in entries]
    found = []
    for number, entry in enumerate(entries):
        field = f"webhooks[{number}]"
        found += [f"{field}.{each}" for each in _problems_of_url(entry, settings.webhook_hosts)]
        if names.index(entry.name) != number:
            found.append(f"{field}.name: {entry.name!r} is used twice: choose another")
        if entry.secret_variable is not None and not environment.get(entry.secret_variable):
            found.append(f"{field}.secret_variable: {entry.secret_variable} is not set: set it")
    if found:
        raise ConfigurationError("\n".join(f"DRIVETRAIN_WEBHOOKS: {path}: {it}" for it in found))
    return tuple(
        Webhook(
            name=entry.name,
            url=entry.url,
            secret=environment.get(entry.secret_variable or "", ""),
            tenants=entry.tenants,
            events=frozenset(map(str, entry.events)),
            alerts=frozenset(map(str, entry.alerts)),
        )
        for entry in entries
    )


def read_networks(settings: MetricsSettings) -> Networks:
    """The networks of addresses that are not public and may be called nevertheless."""
    try:
        return [ip_network(text) for text in settings.webhook_networks]
    except ValueError as error:
        raise ConfigurationError(
            f"DRIVETRAIN_WEBHOOK_NETWORKS: {error}: write networks such as 10.0.0.0/8"
        ) from error


def _read(path: Path) -> list[_Entry]:
    try:
        return _File.model_validate(read_yaml(path)).webhooks
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"DRIVETRAIN_WEBHOOKS: {path}: {error}") from error


def _problems_of_url(entry: _Entry, hosts: Collection[str]) -> list[str]:
    if not entry.url.isascii() or not entry.url.isprintable() or " " in entry.url:
        return [f"url: {entry.url!r:.80} has characters that URLs do not have: write them as %XX"]
    try:
        parts = urlsplit(entry.url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return [f"url: {error}"]
    if parts.scheme not in ("http", "https") or not host:
        return [f"url: {entry.url!r:.80} is no address: write https://HOST/PATH"]
    if parts.username or parts.password:
        return ["url: holds a password, which logs would show: use secret_variable"]
    if host not in hosts:
        return [f"url: {host} is not allowed: add it to DRIVETRAIN_WEBHOOK_HOSTS"]
    return []
