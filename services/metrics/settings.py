"""Settings of the metrics service."""

from pathlib import Path

from pydantic import Field

from services.runtime.settings import Settings


class MetricsSettings(Settings):
    """The runtime's, the bound of one read, and how long samples and lines are kept where."""

    max_samples_read: int = Field(
        default=1_000_000,
        ge=1000,
        description="samples that one request reads; the last ones if there are more",
    )
    max_samples_per_second_of_run: int = Field(
        default=50_000,
        ge=1000,
        description="what a run logs beyond it is left out and counted; ten seconds of it at once",
    )
    max_samples_per_second_of_tenant: int | None = Field(
        default=None, ge=1000, description="of all runs of a tenant, in each replica"
    )
    max_log_bytes_per_second_of_run: int = Field(
        default=1024**2,
        ge=64 * 1024,
        description="of the lines of a run; more is left out and counted",
    )
    max_log_bytes_per_second_of_tenant: int | None = Field(
        default=None, ge=64 * 1024, description="of all runs of a tenant, in each replica"
    )
    max_media_per_second_of_run: int = Field(
        default=100,
        ge=1,
        description="pictures, tables and so on of a run; more is left out and counted",
    )
    max_media_per_second_of_tenant: int | None = Field(
        default=None, ge=1, description="of all runs of a tenant, in each replica"
    )
    cold_after_hours: float = Field(
        default=24.0, ge=0, description="then samples are moved from Postgres to the object store"
    )
    keep_samples_days: int | None = Field(
        default=None,
        ge=1,
        description="then samples in the object store are deleted; never where it is not given",
    )
    keep_media_days: int | None = Field(
        default=None,
        ge=1,
        description="after the end of a job its pictures, tables and so on are deleted; never "
        "where not given",
    )
    max_log_bytes_of_job: int = Field(
        default=1024**3,
        ge=16 * 1024**2,
        description="of the lines of one job; then its first lines are deleted",
    )
    keep_logs_days: int | None = Field(
        default=None,
        ge=1,
        description="so long after its last line a job that does not run has its lines deleted; "
        "never where not given",
    )
    keep_charts_days: int | None = Field(
        default=None,
        ge=1,
        description="then the charts of series without any samples are; never where not given",
    )
    webhooks: Path | None = Field(
        default=None, description="file of the webhooks and lineage endpoints"
    )
    webhook_hosts: tuple[str, ...] = Field(
        default=(), description='hosts that webhooks may name: ["hooks.example.com"]'
    )
    webhook_networks: tuple[str, ...] = Field(
        default=(),
        description='networks that are not public and may be called nevertheless: ["10.0.0.0/8"]',
    )
