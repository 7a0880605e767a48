"""Which failures are waited out, and which are bugs."""

import errno

import asyncpg
import pytest
from asyncpg.exceptions._base import DataError as WrongArgument

from services.runtime.bus import PublishFailed
from services.runtime.errors import (
    KafkaUnavailable,
    PostgresUnavailable,
    StoreError,
    TemporaryError,
    is_temporary,
    unavailable_part,
)

CLOSED = asyncpg.InterfaceError("cannot perform operation: connection is closed")
BUSY = asyncpg.InterfaceError("cannot perform operation: another operation is in progress")


@pytest.mark.parametrize(
    "error",
    [
        TemporaryError("away"),
        PublishFailed((), "no answer"),
        ConnectionRefusedError(),
        TimeoutError(),
        CLOSED,
        asyncpg.ConnectionDoesNotExistError("killed"),
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.AdminShutdownError("stopped"),
        asyncpg.DeadlockDetectedError("deadlock"),
        asyncpg.DiskFullError("full"),
        asyncpg.InsufficientPrivilegeError("permission denied for table outbox"),
        asyncpg.ReadOnlySQLTransactionError("demoted"),
        asyncpg.TargetServerAttributeNotMatched("only standbys"),
        asyncpg.InternalClientError("cannot switch to state 15; another operation is in progress"),
        ExceptionGroup("both", [TimeoutError(), CLOSED]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_waited_out(error: Exception) -> None:
    assert is_temporary(error)


@pytest.mark.parametrize(
    "error",
    [
        # asyncpg says both of a lost connection and of a wrong argument that the interface failed.
        WrongArgument("invalid input for query argument $1: 5 (expected str, got int)"),
        BUSY,
        asyncpg.UndefinedTableError("no such table"),
        asyncpg.UniqueViolationError("twice"),
        asyncpg.CharacterNotInRepertoireError("0x00"),
        KeyError("bug"),
        ExceptionGroup("one is a bug", [TimeoutError(), KeyError("bug")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_bugs(error: Exception) -> None:
    assert not is_temporary(error)


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (KafkaUnavailable("no answer"), "Kafka"),
        (PublishFailed((), "no answer"), "Kafka"),
        (PostgresUnavailable("read-only"), "Postgres"),
        (asyncpg.DeadlockDetectedError("deadlock"), "Postgres"),
        (CLOSED, "Postgres"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "Postgres"),
        (StoreError("s3: read-only"), "object store"),
        (OSError(errno.ENOSPC, "no space left"), "disk"),
        (TemporaryError("no leader"), "another part"),
        (ExceptionGroup("both", [TimeoutError(), StoreError("x")]), "Postgres, object store"),
    ],
)
def test_a_temporary_error_names_the_part_it_comes_from(error: Exception, want: str) -> None:
    assert unavailable_part(error) == want
