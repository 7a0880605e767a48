"""An unavailable part is named."""

import errno

import asyncpg
import pytest

from drivetrain_schemas.object_store import StoreFailure
from services.gateway.rest.unavailable import cause_of
from services.runtime.bus import BusUnavailable, PublishFailed
from services.runtime.errors import PostgresUnavailable, StoreError, TemporaryError


@pytest.mark.parametrize(
    ("error", "code", "named"),
    [
        (StoreError("x", StoreFailure.READ_ONLY), StoreFailure.READ_ONLY, "refuses the platform"),
        (StoreError("x", StoreFailure.FULL), StoreFailure.FULL, "object store is full"),
        (PublishFailed((), "x"), "bus_unavailable", "same request_id"),
        (BusUnavailable((), "x"), "bus_unavailable", "nothing was sent"),
        (PublishFailed((), "TopicAuthorizationFailedError('t')"), "bus_unavailable", "refuses"),
        (BusUnavailable((), "the broker refuses the login"), "bus_unavailable", "Kafka refuses"),
        (PostgresUnavailable("refuses the login"), "database_unavailable", "Postgres refuses"),
        (PostgresUnavailable("read-only"), "database_read_only", "read-only"),
        (asyncpg.InsufficientPrivilegeError("x"), "database_unavailable", "Postgres refuses"),
        (asyncpg.DiskFullError("x"), "database_full", "disk of Postgres is full"),
        (asyncpg.ReadOnlySQLTransactionError("x"), "database_read_only", "read-only"),
        (asyncpg.CannotConnectNowError("x"), "database_unavailable", "Postgres"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "database_unavailable", "Postgres"),
        (TimeoutError(), "database_unavailable", "Postgres"),
        (OSError(errno.ENOSPC, "x"), "disk_full", "disk of the gateway's machine is full"),
        (OSError(errno.EROFS, "x"), "disk_read_only", "read-only"),
        (TemporaryError("x"), "temporarily_unavailable", "a part of the platform"),
    ],
)
def test_the_part_that_failed_is_named(error: Exception, code: str, named: str) -> None:
    cause = cause_of(error)
    assert cause.code == code
    assert named in cause.detail
