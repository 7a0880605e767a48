"""Errors by what should happen next.

PlatformError
├── TemporaryError      the same call may succeed later: pause, back off, try again
│   ├── KafkaUnavailable, PostgresUnavailable
│   └── StoreError      the object store did not do what was asked, and why
├── EventTooLarge       what would be emitted is over the limit: no retry can succeed, a bug
└── ConfigurationError  a setting is wrong: the process ends and names the setting and the fix

What cannot be read is `drivetrain_schemas.envelope.InvalidEvent`: parked at once. Anything else is
a bug: the process ends, is started again, and reads the event again (docs/architecture.md, rule
12).
"""

import errno
from typing import ClassVar

import asyncpg

from drivetrain_schemas.object_store import StoreFailure


class PlatformError(Exception):
    """The base of the runtime's own errors."""


class TemporaryError(PlatformError):
    """Something outside did not answer; the event itself is not the cause.

    `part` names what failed, for people; empty where only the message does.
    """

    part: ClassVar[str] = ""


class KafkaUnavailable(TemporaryError):
    """Kafka did not answer."""

    part: ClassVar[str] = "Kafka"


class PostgresUnavailable(TemporaryError):
    """Postgres accepts no writes at the moment."""

    part: ClassVar[str] = "Postgres"


class StoreError(TemporaryError):
    """The object store did not do what was asked; the message says which store and what."""

    part: ClassVar[str] = "object store"

    def __init__(self, message: str, failure: StoreFailure = StoreFailure.ERROR) -> None:
        super().__init__(message)
        self.failure = failure


class EventTooLarge(PlatformError):
    """An event of ours is over the limit of every reader; its producer must bound its fields."""


class ConfigurationError(PlatformError):
    """A setting is wrong; the message names it and the fix."""


# Postgres by class of SQLSTATE: 08 connections, 25006 read-only after a failover, 40 deadlocks and
# the like, 42501 a right that its operator has to give (no record is at fault), 53 out of
# resources, 55P03 a lock not granted, 57 shutting down, 58 its disk. The last one is what asyncpg
# raises when the server closed an idle connection, or only standbys answer.
TEMPORARY_ERRORS: tuple[type[BaseException], ...] = (
    TemporaryError,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.LockNotAvailableError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalClientError,
)


def is_temporary(error: BaseException) -> bool:
    """True where trying the same thing again later is the right answer."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_temporary(inner) for inner in error.exceptions)
    if isinstance(error, asyncpg.InterfaceError):
        # Raised for a lost connection, and also for a wrong argument, which is a bug.
        return not isinstance(error, ValueError) and "clos" in str(error)
    return isinstance(error, TEMPORARY_ERRORS)


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


def unavailable_part(error: BaseException) -> str:
    """Which part a temporary error comes from, for logs and for people."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({unavailable_part(inner) for inner in error.exceptions}))
    if isinstance(error, TemporaryError):
        return error.part or "another part"
    if isinstance(error, OSError) and error.errno in _DISK:
        return "disk"
    # Clients of Kafka and of the object store have errors of their own; asyncpg passes on the
    # system's where it cannot connect.
    return "Postgres"
