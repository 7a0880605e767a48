"""Settings of the metrics service."""

from pydantic import Field

from services.runtime.settings import Settings


class MetricsSettings(Settings):
    """The runtime's, and the bound of one read."""

    max_samples_read: int = Field(
        default=1_000_000,
        ge=1000,
        description="samples that one request reads; the last ones if there are more",
    )
