"""Which failures are waited out, and which are bugs."""

import asyncpg
import pytest
from asyncpg.exceptions._base import DataError as WrongArgument

from services.runtime.bus import PublishFailed
from services.runtime.errors import TemporaryError, is_temporary

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
