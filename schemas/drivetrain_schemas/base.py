"""What all payloads share: frozen values, aware UTC times, and the fields that name an event type.

Reading an event ignores unknown fields at every depth, so an older reader accepts a newer writer's
event. Requests of people and other systems (commands, and `Strict` values) refuse them instead,
because if a misspelt field were silently dropped, the job would not do what was requested.
`EventKind.unknown_fields` says which of the two `envelope.parse` does.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict

from drivetrain_schemas.topics import Topic


def canonical_json(value: BaseModel) -> str:
    """One text per meaning, independent of the order of fields and of written defaults.

    Requests are compared by it, because in Python 1, 1.0 and true are equal.
    """
    return json.dumps(value.model_dump(mode="json"), sort_keys=True)


class Misfit(ValueError):
    """An invalid value: the problem, the fix, and the field below it that has the problem."""

    def __init__(self, message: str, *, fix: str, field: str = "") -> None:
        super().__init__(message)
        self.fix = fix
        self.field = field


_TIME_FIX = "write a time with its offset, such as 2026-01-31T12:00:00Z"


def _written_as_time(moment: Any) -> Any:
    # pydantic would accept 12, "12" and "2026-01-31" as times, too.
    if isinstance(moment, datetime):
        return moment
    if isinstance(moment, str) and re.match(r"\d{4}-\d{2}-\d{2}[Tt ]", moment):
        return moment
    raise Misfit("is not a time", fix=_TIME_FIX)


# The first and the last moment that Python knows are "infinity" to asyncpg, and lose their zone.
FIRST_YEAR, LAST_YEAR = 2, 9998


def _to_utc(moment: datetime) -> datetime:
    # The year in its own zone first: in UTC the outermost moments overflow.
    if FIRST_YEAR <= moment.year <= LAST_YEAR:
        moment = moment.astimezone(UTC)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise Misfit(f"is outside the years {FIRST_YEAR} to {LAST_YEAR}", fix=_TIME_FIX)
    return moment


UtcTime = Annotated[AwareDatetime, BeforeValidator(_written_as_time), AfterValidator(_to_utc)]


class Value(BaseModel):
    """A frozen part of a payload."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Strict(BaseModel):
    """A frozen part of a request that people write: unknown fields are refused.

    To read one from a store or a file that a newer version may have written, pass `extra="ignore"`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class EventKind:
    """The fixed facts of one event type: name, version, topic and producer."""

    type: str
    version: int
    topic: Topic
    producer: str

    @property
    def is_command(self) -> bool:
        return self.topic.name.startswith("commands.")

    @property
    def unknown_fields(self) -> Literal["forbid", "ignore"]:
        """What a reader does with fields it does not know."""
        return "forbid" if self.is_command else "ignore"


class Payload(Value):
    """The payload of one event type; the docstring of each class is its text in the catalogue."""

    kind: ClassVar[EventKind]

    @property
    def key(self) -> str:
        """The Kafka key: the id whose order matters on this topic."""
        key = getattr(self, self.kind.topic.key)
        assert key is not None, f"{self.kind.type} needs {self.kind.topic.key}"
        return str(key)

    def key_within(self, tenant_id: str) -> str:
        """The key of a record with this payload, where the payload may leave out the field."""
        return self.key


P = TypeVar("P", bound=Payload)

KINDS: dict[tuple[str, int], type[Payload]] = {}


def event(
    type_name: str, *, topic: Topic, producer: str, version: int = 1
) -> Callable[[type[P]], type[P]]:
    """Class decorator: set the event type and add it to the registry."""

    def register(payload: type[P]) -> type[P]:
        assert (type_name, version) not in KINDS, f"{type_name} v{version} is declared twice"
        assert topic.key in payload.model_fields, f"{type_name} has no field {topic.key!r}"
        payload.kind = EventKind(type_name, version, topic, producer)
        KINDS[(type_name, version)] = payload
        return payload

    return register
