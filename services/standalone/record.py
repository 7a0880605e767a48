"""What `state.json` says: the parts that the supervisor recorded, and their processes.

In: the file. Out: the record; what is missing or damaged in it counts as unknown. The file is only
a hint, so no content of it may stop a start, `status` or `stop`.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from services.standalone.identity import Pid, ProcessIdentity


def _or_none(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    try:
        return validate(value)
    except ValidationError:
        return None


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("without a time zone")
    return text


T = TypeVar("T")
Known = Annotated[T | None, WrapValidator(_or_none)]
Time = Annotated[str, AfterValidator(_with_zone)]


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Row(_Lenient):
    """A part, and its process where the supervisor had one."""

    name: str
    state: Known[str] = None
    restarts: Known[int] = None
    port: Known[int] = None
    log: Known[str] = None
    last_exit: Known[str] = None
    since: Known[Time] = None
    started_at: Known[Time] = None
    pid: Known[Pid] = None
    start_ticks: Known[int] = None
    boot_id: Known[str] = None

    @property
    def identity(self) -> ProcessIdentity | None:
        if self.pid is None or self.start_ticks is None or self.boot_id is None:
            return None
        return ProcessIdentity(self.pid, self.start_ticks, self.boot_id)


class Record(_Lenient):
    home: Known[dict[str, int]] = None
    """The data directory that it was written in, as the supervisor names it."""
    parts: Known[list[Known[Row]]] = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for row in self.parts or () if row)


def read_record(file: Path) -> Record:
    try:
        return Record.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return Record()
