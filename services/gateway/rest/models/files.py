"""Files that a job saved, and the code it runs."""

from datetime import datetime

from pydantic import BaseModel


class File(BaseModel):
    """`mode`: its permissions, such as "644". `target`: of a symbolic link."""

    path: str
    size_bytes: int = 0
    mode: str = "777"
    modified_at: datetime | None = None
    sha256: str | None = None
    target: str | None = None


class JobFiles(BaseModel):
    """`checkpoint_id`: the files as of its step. Nothing was saved yet: no `saved_at`."""

    job_id: str
    checkpoint_id: str | None = None
    attempt: int | None = None
    saved_at: datetime | None = None
    files: list[File] = []
    size_bytes: int = 0
    num_left_out: int = 0
    left_out: list[str] = []


class Code(BaseModel):
    """The value of a spec's `code`: {uri, sha256}."""

    uri: str
    sha256: str
    size_bytes: int
    is_new: bool
