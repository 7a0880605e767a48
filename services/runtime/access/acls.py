"""A broker's access lists, made from the one table in `drivetrain_schemas.access`.

In: the prefix of topics, the form of a user's name. Out: all list entries that should exist. A user
has the name of its row; where users are known by their certificates the form is `CN={user}`. Write
permits an idempotent producer (Kafka 2.8 and later); read and write include the right to describe.
Only a client may use transactions: no service does.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from drivetrain_schemas.access import ACCESS, CLIENT
from drivetrain_schemas.topics import SERVICES


class Resource(IntEnum):
    """The codes of the Kafka protocol, here and below."""

    TOPIC = 2
    GROUP = 3
    TRANSACTIONAL_ID = 5


class Pattern(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    READ = 3
    WRITE = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    user: str
    resource: int
    name: str
    pattern: int
    operation: int
    permission: int = Permission.ALLOW


@dataclass(frozen=True, slots=True)
class Changes:
    missing: tuple[Acl, ...]
    surplus: tuple[Acl, ...]


def wanted_acls(prefix: str, user_form: str = "{user}") -> frozenset[Acl]:
    """Every entry of the table, for topics and groups that begin with this prefix."""
    entries = (*_topics(prefix), *_groups(prefix), *_of_clients(prefix))
    return frozenset(replace(acl, user=user_form.format(user=acl.user)) for acl in entries)


def changes(
    present: Collection[Acl],
    wanted: Collection[Acl],
    is_ours: Callable[[Acl], bool] = lambda acl: True,
) -> Changes:
    """What is to be created; what is to be deleted of the entries that are ours."""
    surplus = {acl for acl in present if is_ours(acl)} - set(wanted)
    return Changes(tuple(sorted(set(wanted) - set(present))), tuple(sorted(surplus)))


def is_of_platform(prefix: str, wanted: Collection[Acl]) -> Callable[[Acl], bool]:
    """On a broker with other applications: entries of our users, on names with our prefix."""
    users = {acl.user for acl in wanted}
    return lambda acl: acl.user in users and acl.name.startswith(prefix)


def _topics(prefix: str) -> Iterator[Acl]:
    for user, access in ACCESS.items():
        for operation, topics in (
            (Operation.READ, access.reads),
            (Operation.WRITE, access.writes),
        ):
            for topic in topics:
                yield Acl(user, Resource.TOPIC, prefix + topic.name, Pattern.LITERAL, operation)


def _groups(prefix: str) -> Iterator[Acl]:
    for service in SERVICES:
        yield Acl(service, Resource.GROUP, prefix + service, Pattern.PREFIXED, Operation.READ)


def _of_clients(prefix: str) -> Iterator[Acl]:
    """Groups of any name but those of the services, whose offsets a client could move."""
    yield Acl(CLIENT, Resource.GROUP, "*", Pattern.LITERAL, Operation.READ)
    for service in SERVICES:
        group = prefix + service
        yield Acl(CLIENT, Resource.GROUP, group, Pattern.PREFIXED, Operation.READ, Permission.DENY)
    yield Acl(CLIENT, Resource.TRANSACTIONAL_ID, "*", Pattern.LITERAL, Operation.WRITE)
