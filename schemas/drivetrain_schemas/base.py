"""What all payloads share: frozen values, aware UTC times, and the fields that name an event type.

Reading ignores unknown fields, so an older reader takes a newer writer's event. What people or
other systems write (`Strict`) refuses unknown fields instead, because a misspelt field that is
silently dropped is a job that does something else than was asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict

from drivetrain_schemas.topics import Topic


def _to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


UtcTime = Annotated[AwareDatetime, AfterValidator(_to_utc)]


class Value(BaseModel):
    """A frozen part of a payload."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Strict(BaseModel):
    """A frozen part of a request that people write: unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)


@dataclass(frozen=True, slots=True)
class EventKind:
    """The fixed facts of one event type: its name and version, where it travels, who writes it."""

    type: str
    version: int
    topic: Topic
    producer: str


class Payload(Value):
    """The typed inner fact of one event type; the docstring is the catalogue's entry."""

    kind: ClassVar[EventKind]

    @property
    def key(self) -> str:
        """The Kafka key: the id whose order matters on this topic."""
        key = getattr(self, self.kind.topic.key)
        assert key is not None, f"{self.kind.type} is written with {self.kind.topic.key}"
        return str(key)


P = TypeVar("P", bound=Payload)

KINDS: dict[tuple[str, int], type[Payload]] = {}


def event(
    type_name: str, *, topic: Topic, producer: str, version: int = 1
) -> Callable[[type[P]], type[P]]:
    """Class decorator: name the event type and enter it in the registry."""

    def register(payload: type[P]) -> type[P]:
        assert (type_name, version) not in KINDS, f"{type_name} v{version} is declared twice"
        assert topic.key in payload.model_fields, f"{type_name} has no field {topic.key!r}"
        payload.kind = EventKind(type_name, version, topic, producer)
        KINDS[(type_name, version)] = payload
        return payload

    return register
