"""Pictures, histograms, tables, texts and files that a program logs, by name and step.

The bytes are in the object store, named by their SHA-256; this record says what they are.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import JobId, RunId, TenantId
from drivetrain_schemas.specs import MetricName
from drivetrain_schemas.text import AS_PRINTED, form
from drivetrain_schemas.topics import METRICS
from drivetrain_schemas.units import Attempt, Fence, Ordinal, Step

MAX_MEDIA_BYTES = 25 * 1000**2
MAX_ITEMS = 64  # of one name at one step
MAX_CAPTION_CHARACTERS = 500
MAX_FILE_NAME_CHARACTERS = 255

MediaKind = Literal["image", "histogram", "table", "text", "file"]
# How an image is stored; the others have one form each.
ImageForm = Literal["png", "jpeg", "gif", "webp"]
Sha256 = Annotated[str, form("[0-9a-f]{64}", "the SHA-256 as 64 small hexadecimal digits")]


@event("media.logged", topic=METRICS, producer="pod")
class MediaLogged(Payload):
    """One item is stored. `number` counts what an attempt logs: of two for one place, it decides.

    `item` is its place among those logged under this name at this step.
    """

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    name: MetricName
    step: Step
    item: Annotated[int, Field(ge=0, lt=MAX_ITEMS)] = 0
    number: Ordinal
    media: MediaKind
    image_form: ImageForm | None = None
    sha256: Sha256
    size_bytes: Annotated[int, Field(ge=0, le=MAX_MEDIA_BYTES)]
    caption: Annotated[str, StringConstraints(max_length=MAX_CAPTION_CHARACTERS), AS_PRINTED] = ""
    file_name: (
        Annotated[str, StringConstraints(max_length=MAX_FILE_NAME_CHARACTERS), AS_PRINTED] | None
    ) = None
    logged_at: UtcTime


def media_directory(tenant_id: str, job_id: str) -> str:
    """Where the bytes of a job's media are in the object store, without a slash at the end."""
    return f"media/{tenant_id}/{job_id}"
