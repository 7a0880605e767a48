"""Reads webhooks and lineage endpoints from their YAML file. Raises ConfigurationError with the
field and the fix."""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from drivetrain_schemas.metrics import AlertKind
from services.metrics.core.lineage import Endpoint
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


_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
_Url = Annotated[str, Field(max_length=2000)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: _Name
    url: _Url
    secret_variable: str | None = None
    tenants: frozenset[str] = frozenset()
    events: frozenset[EventType] = frozenset()
    alerts: frozenset[AlertKind] = frozenset()


class _LineageEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: _Name
    url: _Url
    key_variable: str | None = None
    tenants: frozenset[str] = frozenset()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    webhooks: Annotated[list[_Entry], Field(max_length=32)] = []
    lineage: Annotated[list[_LineageEntry], Field(max_length=8)] = []


def read_webhooks(settings: MetricsSettings, environment: Mapping[str, str]) -> tuple[Webhook, ...]:
    """The checked webhooks; none without a file."""
    if settings.webhooks is None:
        return ()
    entries = _read(settings.webhooks).webhooks
    _check(
        settings,
        [
            problem
            for number, entry in enumerate(entries)
            for problem in (
                *_problems_of_entry(f"webhooks[{number}]", entry, entries[:number], settings),
                *_unset(f"webhooks[{number}].secret_variable", entry.secret_variable, environment),
            )
        ],
    )
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


def read_endpoints(
    settings: MetricsSettings, environment: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """The checked endpoints of lineage; none without a file."""
    if settings.webhooks is None:
        return ()
    entries = _read(settings.webhooks).lineage
    _check(
        settings,
        [
            problem
            for number, entry in enumerate(entries)
            for problem in (
                *_problems_of_entry(f"lineage[{number}]", entry, entries[:number], settings),
                *_unset(f"lineage[{number}].key_variable", entry.key_variable, environment),
            )
        ],
    )
    return tuple(
        Endpoint(
            name=entry.name,
            url=entry.url,
            key=environment.get(entry.key_variable or "", ""),
            tenants=entry.tenants,
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


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(read_yaml(path))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"DRIVETRAIN_WEBHOOKS: {path}: {error}") from error


def _check(settings: MetricsSettings, found: Sequence[str]) -> None:
    if found:
        said = (f"DRIVETRAIN_WEBHOOKS: {settings.webhooks}: {problem}" for problem in found)
        raise ConfigurationError("\n".join(said))


def _problems_of_entry(
    field: str,
    entry: _Entry | _LineageEntry,
    earlier: Sequence[_Entry | _LineageEntry],
    settings: MetricsSettings,
) -> list[str]:
    found = [f"{field}.{each}" for each in _problems_of_url(entry.url, settings.webhook_hosts)]
    if entry.name in {each.name for each in earlier}:
        found.append(f"{field}.name: {entry.name!r} is used twice: choose another")
    return found


def _unset(field: str, variable: str | None, environment: Mapping[str, str]) -> list[str]:
    if variable is None or environment.get(variable):
        return []
    return [f"{field}: {variable} is not set: set it"]


def _problems_of_url(url: str, hosts: Collection[str]) -> list[str]:
    if not url.isascii() or not url.isprintable() or " " in url:
        return [f"url: {url!r:.80} has characters that URLs do not have: write them as %XX"]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return [f"url: {error}"]
    if parts.scheme not in ("http", "https") or not host:
        return [f"url: {url!r:.80} is no address: write https://HOST/PATH"]
    if parts.username or parts.password:
        return ["url: holds a password, which logs would show: use a variable"]
    if not _is_name(host):
        return [f"url: {host!r:.80} is no name of a host: no part of it is empty or long"]
    if host not in hosts:
        return [f"url: {host} is not allowed: add it to DRIVETRAIN_WEBHOOK_HOSTS"]
    return []


def _is_name(host: str) -> bool:
    """Whether it can be resolved; otherwise each call of it would raise what is no OSError."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
