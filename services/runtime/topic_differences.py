"""How a topic on the brokers differs from its declaration, and what to do about each difference.

Pure. In: what is wanted and what was found. Out: differences, each with its fix. The one thing that
is ever changed here is the number of partitions, upwards, and only where that keeps the order: the
records of a key stay in order because they are on one partition, and with more partitions the same
key is on another one from then on. A record that is still to be read on the old partition could
then be handled after a later one on the new partition. So a keyed topic grows only while it is
empty; a parked record stands for itself, and its topic may always grow. Retention, replication and
the rest are the operator's to change: they cost disk and network, and are only reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PARKED = "parked."


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as the brokers describe it."""

    num_partitions: int
    replication_factor: int
    """Of the partition with the fewest replicas."""
    configs: Mapping[str, str]
    is_empty: bool
    """No partition holds a record."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """`is_kept_for_ever`: its records are read again from the start by a rebuild."""

    name: str
    """With the prefix."""
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    is_keyed: bool
    is_kept_for_ever: bool


@dataclass(frozen=True, slots=True)
class Difference:
    topic: str
    setting: str
    found: str
    wanted: str
    fix: str
    grows: bool = False
    """Creating topics applies this one: the partitions may grow."""


def differences(wanted: Wanted, found: Found | None) -> tuple[Difference, ...]:
    if found is None:
        fix = "python -m services.runtime.topics creates it"
        return (Difference(wanted.name, "topic", "missing", "present", fix),)
    rows = [*_partitions(wanted, found), *_replication(wanted, found)]
    for name, value in wanted.configs.items():
        if found.configs.get(name) != value:
            fix = f"kafka-configs.sh --alter --topic {wanted.name} --add-config {name}={value}"
            rows.append(
                Difference(wanted.name, name, found.configs.get(name, "not set"), value, fix)
            )
    return tuple(rows)


def _partitions(wanted: Wanted, found: Found) -> list[Difference]:
    if found.num_partitions == wanted.num_partitions:
        return []
    grows = False
    if found.num_partitions > wanted.num_partitions:
        fix = "none is needed: partitions cannot be removed, and more of them keep the order"
    elif not wanted.is_keyed or found.is_empty:
        grows = True
        fix = "python -m services.runtime.topics adds them"
    elif wanted.is_kept_for_ever:
        fix = (
            "keep it: the records of a key would be on two partitions, and a rebuild would read "
            "them in any order (docs/guides/brokers.md)"
        )
    else:
        fix = (
            "stop what writes it, wait until its records have been read and have expired, then "
            "run python -m services.runtime.topics: until then later records of a key could be "
            "handled before earlier ones"
        )
    counts = (str(found.num_partitions), str(wanted.num_partitions))
    return [Difference(wanted.name, "partitions", *counts, fix, grows)]


def _replication(wanted: Wanted, found: Found) -> list[Difference]:
    if found.replication_factor == wanted.replication_factor:
        return []
    fix = (
        f"kafka-reassign-partitions.sh, or DRIVETRAIN_TOPIC_REPLICATION_FACTOR="
        f"{found.replication_factor} if that is what is meant"
    )
    counts = (str(found.replication_factor), str(wanted.replication_factor))
    return [Difference(wanted.name, "replication factor", *counts, fix)]
