"""What the read model holds one view of per key, and how an event changes that view.

A rule is a pure function of a frozen view and an event. Rules commute and repeat without effect:
whatever order late and doubled events come in, the view is the same at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event

V = TypeVar("V")
Key = tuple[Any, ...]

# The register of facts that no event has given yet.
NEVER = -1


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """One kind of view; its fields are the columns of `table`.

    `key_of` gives None for an event that concerns no view; `new` makes the view an event finds when
    it is the first about its key.
    """

    table: str
    view: type
    key: tuple[str, ...]
    key_of: Callable[[Event[Any]], Key | None]
    new: Callable[[Event[Any]], Any]
    rules: Mapping[type[Payload], Callable[[Any, Event[Any]], Any]]

    def apply(self, view: Any, event: Event[Any]) -> Any:
        """The view after `event`; `view` is None before the first event about its key."""
        rule = self.rules[type(event.payload)]
        return rule(self.new(event) if view is None else view, event)


def newest(view: V, register: str, event: Event[Any], **facts: Any) -> V:
    """Facts of one kind come from the event with the highest `seq`; `register` remembers it."""
    seq = event.seq or 0
    if seq <= getattr(view, register):
        return view
    changed: V = replace(view, **{register: seq}, **facts)  # type: ignore[type-var]
    return changed


def as_it_is(view: V, _event: Event[Any]) -> V:
    """The rule for an event that only tells that the view exists."""
    return view


def by(*fields: str) -> Callable[[Event[Any]], Key]:
    """The key of an event whose payload has these fields."""

    def key_of(event: Event[Any]) -> Key:
        return tuple(getattr(event.payload, name) for name in fields)

    return key_of
