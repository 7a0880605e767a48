"""What the read model holds one view of per key, and how an event changes that view.

A rule is a pure function of a frozen view and an event. Rules commute and repeat without effect:
whatever order late and doubled events come in, the view is the same at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from drivetrain_schemas.base import Payload, Value
from drivetrain_schemas.envelope import Event

V = TypeVar("V")
Key = tuple[Any, ...]
Rule = Callable[[Any, Event[Any]], Any]

# The register of facts that no event has set yet.
NEVER = -1
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """One kind of view; its fields are the columns of `table`.

    The key, and what a view begins with (its fields without a default), are the payload's fields of
    these names, unless `key_of` and `new` define them. A key of None: no view is affected.
    """

    table: str
    view: type
    key: tuple[str, ...]
    rules: Mapping[type[Payload], Rule]
    key_of: Callable[[Event[Any]], Key | None] | None = None
    new: Callable[[Event[Any]], Any] | None = None

    def find_key(self, event: Event[Any]) -> Key | None:
        if self.key_of is not None:
            return self.key_of(event)
        return tuple(getattr(event.payload, name) for name in self.key)

    def apply(self, view: Any, event: Event[Any]) -> Any:
        """The view after `event`; `view` is None before the first event about its key."""
        if view is None:
            view = self.new(event) if self.new else self._begin(event)
        return self.rules[type(event.payload)](view, event)

    def _begin(self, event: Event[Any]) -> Any:
        begun = _required(self.view)
        of_key = dict(zip(self.key, self.find_key(event) or (), strict=True))
        tenant = {"tenant_id": event.tenant_id} if "tenant_id" in begun else {}
        return self.view(**tenant | given(event, *begun - of_key.keys() - tenant.keys()) | of_key)


def given(event: Event[Any], *same: str, **renamed: str) -> dict[str, Any]:
    """Facts from the payload, under the same names or under others; parts of it as plain JSON."""
    names = {**dict.fromkeys(same), **renamed}
    return {name: _plain(getattr(event.payload, of or name)) for name, of in names.items()}


def newest(view: V, register: str, event: Event[Any], **facts: Any) -> V:
    """Facts of one kind come from the event with the highest `seq`; `register` remembers it."""
    seq = event.seq or 0
    if seq <= getattr(view, register):
        return view
    return changed(view, **{register: seq}, **facts)


def moves_to(of_state: Mapping[str, Any], state: str, *same: str, **renamed: str) -> Rule:
    """The rule for an event that begins a state: with these facts, and without those of others."""

    def move(view: V, event: Event[Any]) -> V:
        facts = {**of_state, **given(event, *same, **renamed)}
        return newest(view, "state_seq", event, state=state, **facts)

    return move


def changed(view: V, **facts: Any) -> V:
    """The view with these facts: as `dataclasses.replace`, in a third of the time."""
    kind: Any = type(view)
    names = _names(kind)
    values = dict(zip(names, _values(kind)(view), strict=True)) | facts
    assert len(values) == len(names), f"{kind.__name__} lacks a field of {list(facts)}"
    after: V = kind(*values.values())
    return after


@cache
def _names(view: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(view))


@cache
def _values(view: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*_names(view))


@cache
def _required(view: Any) -> frozenset[str]:
    """The fields without a default."""
    return frozenset(field.name for field in fields(view) if field.default is MISSING)


def earliest(known: datetime | None, moment: datetime) -> datetime:
    """The earlier of the two times."""
    return moment if known is None else min(known, moment)


def as_it_is(view: V, _event: Event[Any]) -> V:
    """The rule for an event that changes nothing in a view that exists."""
    return view


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json") if isinstance(value, Value) else value
