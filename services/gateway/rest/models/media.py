"""Media of a job: pictures, histograms, tables, texts and files, by name and step."""

from datetime import datetime

from pydantic import BaseModel


class MediaName(BaseModel):
    """One name; `media` is image, histogram, table, text or file."""

    name: str
    media: str
    num_steps: int
    first_step: int
    last_step: int


class MediaNames(BaseModel):
    job_id: str
    names: list[MediaName]


class MediaItem(BaseModel):
    """One of what was logged under a name at a step, by the highest attempt that did.

    `content_url` has the bytes: a picture, JSON (histogram, table), text, or any file.
    """

    name: str
    step: int
    item: int
    attempt: int
    media: str
    image_form: str | None
    sha256: str
    size_bytes: int
    caption: str
    file_name: str | None
    logged_at: datetime
    content_url: str


class MediaItems(BaseModel):
    """By step and item; of more steps than asked for, the last ones."""

    job_id: str
    name: str
    items: list[MediaItem]
