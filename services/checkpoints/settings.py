"""Settings of the checkpoints service."""

from pydantic import Field

from services.runtime.settings import Settings


class CheckpointsSettings(Settings):
    list_seconds: float = Field(
        default=30.0, gt=0, description="between two listings of a live job's checkpoints"
    )
    verify_timeout_seconds: float = Field(
        default=900.0, gt=0, description="for reading one checkpoint; then it is tried again"
    )
    max_jobs_at_once: int = Field(
        default=4, ge=1, le=64, description="jobs whose checkpoints are worked on side by side"
    )
