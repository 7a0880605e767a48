"""Settings of the checkpoints service."""

from pydantic import Field

from services.runtime.settings import Settings


class CheckpointsSettings(Settings):
    list_seconds: float = Field(
        default=30.0, gt=0, description="between two listings of a live job's checkpoints"
    )
    max_jobs_at_once: int = Field(
        default=4, ge=1, le=64, description="jobs whose checkpoints are worked on side by side"
    )
    read_bytes_per_second: float = Field(
        default=100e6, gt=0, description="for reading the bytes of checkpoints, all together"
    )
    reread_bytes_per_second: float = Field(
        default=2e6, gt=0, description="its share for reading again what was read a day ago"
    )
    commit_seconds: float = Field(
        default=60.0, ge=0, description="then a checkpoint not yet read is committed by its sizes"
    )
    silence_seconds: float = Field(
        default=60.0, gt=0, description="without a byte from the object store; then tried again"
    )
