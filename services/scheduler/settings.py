"""Settings of the scheduler, in addition to those of every service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from drivetrain_schemas.ids import NodeId
from drivetrain_schemas.kafka_security import (
    OF_PODS,
    OF_SERVICES,
    SaslMechanism,
    SecurityProtocol,
    contradictions,
    effective_protocol,
)
from services.scheduler.core.model import SHARED
from services.scheduler.kubernetes_settings import KubernetesSettings

CodeUrl = Annotated[str, Field(pattern=r"^(s3|file)://[!-~]+$")]


class NodeSetting(BaseModel):
    """One node whose slots may be granted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_id: NodeId
    pool: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "default"
    device_type: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")] = "cpu"
    slots: Annotated[int, Field(ge=1, le=100_000)]
    first_device: Annotated[int, Field(ge=0, description="the machine's device that is slot 0")] = 0
    is_spot: Annotated[bool | None, Field(description="its provider may take it away")] = None


class SchedulerSettings(KubernetesSettings):
    """`DRIVETRAIN_NODES` is JSON: [{"node_id", "pool", "device_type", "slots", "first_device",
    "is_spot"}].

    For one replica: each of two would receive only a part of the reports.
    """

    nodes: tuple[NodeSetting, ...] = ()
    pods_directory: Path = Path("/var/lib/drivetrain/pods")
    template_socket: Path | None = None
    # How pods log in to Kafka: as the scheduler where not set, but never with its certificate.
    pods_kafka_bootstrap_servers: str | None = None
    pods_kafka_security_protocol: SecurityProtocol | None = None
    pods_kafka_sasl_mechanism: SaslMechanism | None = None
    pods_kafka_username: str | None = None
    pods_kafka_password: SecretStr | None = None
    pods_kafka_ca_path: Path | None = None
    pods_kafka_certificate_path: Path | None = None
    pods_kafka_key_path: Path | None = None
    lease_seconds: float = Field(default=15.0, gt=0)
    beacon_seconds: float = Field(default=2.0, gt=0)
    start_seconds: float | None = Field(
        default=None, gt=0, description="until a launched pod must run; else the launcher's"
    )
    refused_seconds: float = Field(
        default=120.0,
        ge=0,
        description="how long a run whose pods cannot be created holds its slots",
    )
    cancel_notice_seconds: float = Field(default=30.0, ge=0)
    gang_notice_seconds: float = Field(default=5.0, ge=0)
    poll_seconds: float = Field(default=0.2, gt=0, le=0.5)
    resync_seconds: float = Field(default=30.0, gt=0, le=60)
    code_urls: tuple[CodeUrl, ...] = Field(
        default=(), description="where jobs' code may come from, in addition to the object store"
    )
    max_log_kib_per_second_of_pod: int = Field(
        default=1024, ge=1, description="of its output; a job asks for up to so much"
    )
    kept_pod_directories: int = Field(default=50, ge=0, description="of finished jobs")
    kept_pod_directories_bytes: int = Field(
        default=10 * 1024**3,
        ge=0,
        description="of all of them together; the oldest are removed first",
    )

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if self.launcher == "kubernetes" and self.nodes:
            yield (
                "DRIVETRAIN_NODES is set, but with DRIVETRAIN_LAUNCHER=kubernetes the nodes come "
                "from the cluster: leave it out"
            )
        login = self.pods_login()
        has_own = login["certificate"] is not None or login["username"] is not None
        if self.kafka_certificate_path is not None and not has_own:
            yield (
                f"{OF_SERVICES.certificate} is set, but pods run users' code and are not given the "
                f"scheduler's key: set {OF_PODS.certificate} and {OF_PODS.key}, or "
                f"{OF_PODS.username} and {OF_PODS.password}"
            )
            return
        yield from contradictions(login, OF_PODS)

    def pods_login(self) -> dict[str, Any]:
        """How pods log in, by field of SettingNames; as the scheduler where nothing else is set."""
        username, password = self.pods_kafka_username, self.pods_kafka_password
        if username is None and password is None and self.pods_kafka_certificate_path is None:
            username, password = self.kafka_sasl_username, self.kafka_sasl_password
        protocol = effective_protocol(
            self.pods_kafka_security_protocol or self.kafka_security_protocol, username
        )
        mechanism = self.pods_kafka_sasl_mechanism
        if mechanism is None and protocol.startswith("SASL_"):
            mechanism = self.kafka_sasl_mechanism
        ca = self.pods_kafka_ca_path
        if ca is None and protocol.endswith("SSL"):
            ca = self.kafka_ca_path
        return {
            "servers": self.pods_kafka_bootstrap_servers or self.kafka_bootstrap_servers,
            "protocol": protocol,
            "mechanism": mechanism,
            "username": username,
            "password": password,
            "ca": ca,
            "certificate": self.pods_kafka_certificate_path,
            "key": self.pods_kafka_key_path,
        }

    @model_validator(mode="after")
    def _each_node_once(self) -> "SchedulerSettings":
        names = [node.node_id for node in self.nodes]
        if len(set(names)) < len(names):
            raise ValueError("nodes: give each node_id once")
        return self

    @model_validator(mode="after")
    def _each_device_once(self) -> "SchedulerSettings":
        owners: dict[int, str] = {}
        for node in self.nodes:
            if node.device_type == SHARED:
                continue
            for device in range(node.first_device, node.first_device + node.slots):
                if device in owners:
                    raise ValueError(
                        f"nodes: {owners[device]} and {node.node_id} both have device {device} of "
                        "this machine; give each its own with first_device"
                    )
                owners[device] = node.node_id
        return self
