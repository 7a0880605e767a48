"""Settings of the gateway."""

from pathlib import Path

from pydantic import Field, SecretStr

from services.gateway.core import sessions
from services.runtime.settings import Settings


class GatewaySettings(Settings):
    api_token: SecretStr = Field(min_length=16)
    cookie_secret: SecretStr = Field(min_length=16, description="signs sessions")
    metrics_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    cost_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    hpo_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    scheduler_url: str | None = Field(default=None, pattern=r"^https?://[^/]+")
    assets_directory: Path | None = None
    data_directory: Path | None = Field(
        default=None, description="pages warn while the disk of this directory is almost full"
    )

    code_quota_bytes: int = Field(
        default=10 * 1024**3, ge=64 * 1024**2, description="of a tenant's uploaded code"
    )

    def session_secret(self) -> bytes:
        """The key that signs sessions."""
        return sessions.session_secret(
            self.api_token.get_secret_value(), self.cookie_secret.get_secret_value()
        )
