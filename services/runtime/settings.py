"""Settings of every service, from environment variables `DRIVETRAIN_<NAME>`.

Each may also be given as `DRIVETRAIN_<NAME>_FILE`, the path of a file that holds the value. An
unknown name with our prefix is refused: a misspelt setting must not silently use the default.
"""

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from drivetrain_schemas.kafka_security import (
    OF_SERVICES,
    SaslMechanism,
    SecurityProtocol,
    contradictions,
)
from services.runtime.errors import ConfigurationError

PREFIX = "DRIVETRAIN_"
# Read by the command line, which shares the caller's environment.
OF_THE_CLIENT = ("DRIVETRAIN_HOME", "DRIVETRAIN_URL", "DRIVETRAIN_TOKEN")


class Settings(BaseSettings):
    """What every service needs; a service adds its own fields."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    kafka_bootstrap_servers: str
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_security_protocol: SecurityProtocol | None = Field(
        default=None, description="SASL_PLAINTEXT with a user name, otherwise PLAINTEXT"
    )
    kafka_sasl_mechanism: SaslMechanism | None = Field(default=None, description="default: PLAIN")
    kafka_ca_path: Path | None = Field(
        default=None, description="CAs of the brokers, as PEM; the system's where it is not given"
    )
    kafka_certificate_path: Path | None = Field(
        default=None, description="client certificate and its chain, as PEM"
    )
    kafka_key_path: Path | None = Field(
        default=None, description="key of the client certificate, as PEM without a password"
    )
    topic_prefix: str = "drivetrain."
    topic_replication_factor: int = Field(default=1, ge=1, le=10)
    postgres_dsn: SecretStr
    object_store_url: str = "file:///var/lib/drivetrain/objects"
    object_store_endpoint_url: str | None = None
    object_store_id: str | None = Field(
        default=None, description="of the store's marker; any where it is not given"
    )
    replica: int = Field(default=0, ge=0, description="number of this process in its service")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    ops_host: str = "127.0.0.1"
    ops_port: int = Field(default=0, ge=0, le=65535)
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description='further values of the Host header to answer to: ["drivetrain.example.com"]',
    )
    read_token: SecretStr | None = Field(
        default=None, min_length=16, description="bearer token of the services' read ports"
    )
    run_token_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="signs and checks pods' reports, one for all services; none: not checked",
    )
    shutdown_seconds: float = Field(default=20.0, gt=0)

    def contradictions(self) -> Iterator[str]:
        """What cannot be meant, setting by setting, each with the fix."""
        given = {
            "protocol": self.kafka_security_protocol,
            "mechanism": self.kafka_sasl_mechanism,
            "username": self.kafka_sasl_username,
            "password": self.kafka_sasl_password,
            "ca": self.kafka_ca_path,
            "certificate": self.kafka_certificate_path,
            "key": self.kafka_key_path,
        }
        yield from contradictions(given, OF_SERVICES)


S = TypeVar("S", bound=Settings)


def load(settings_class: type[S], environment: Mapping[str, str]) -> S:
    """Read and check the settings. Raises ConfigurationError that lists every invalid variable."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name in OF_THE_CLIENT:
            continue
        field = name.removeprefix(PREFIX).lower()
        if field in settings_class.model_fields:
            values[field] = text
        elif field.removesuffix("_file") not in settings_class.model_fields:
            problems.append(f"{name}: no such setting; {_hint(field, settings_class)}")
        elif name.removesuffix("_FILE") in environment:
            problems.append(f"{name}: {name.removesuffix('_FILE')} is given too: leave one out")
        else:
            values[field.removesuffix("_file")] = _read(name, text, problems)
    try:
        if not problems:
            settings = settings_class.model_validate(_decode(settings_class, values))
            problems += settings.contradictions()
            if not problems:
                return settings
    except ValidationError as error:
        for item in error.errors():
            variable = PREFIX + str(item["loc"][0]).upper() if item["loc"] else "settings"
            problems.append(f"{variable}: {item['msg']}")
    raise ConfigurationError("\n".join(problems))


def masked(settings: Settings) -> dict[str, Any]:
    """The settings for display: secrets are masked."""
    shown: dict[str, Any] = settings.model_dump(mode="json")
    return shown


def from_process(settings_class: type[S]) -> S:
    return load(settings_class, os.environ)


def _hint(field: str, settings_class: type[Settings]) -> str:
    near = difflib.get_close_matches(field, settings_class.model_fields, n=1)
    if near:
        return f"did you mean {PREFIX}{near[0].upper()}?"
    return "known are " + ", ".join(PREFIX + known.upper() for known in settings_class.model_fields)


def _read(name: str, path: str, problems: list[str]) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        problems.append(f"{name}: cannot read {path}: {error.strerror}")
        return ""


def _decode(settings_class: type[S], values: dict[str, Any]) -> dict[str, Any]:
    """Fields that hold lists or mappings are written as JSON."""
    decoded = dict(values)
    for name, text in values.items():
        annotation = settings_class.model_fields[name].annotation
        if text[:1] in "[{" and annotation not in (str, SecretStr):
            try:
                decoded[name] = json.loads(text)
            except ValueError:
                continue
    return decoded
