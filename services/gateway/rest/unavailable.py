"""Which part is unavailable, and how, from the error that a request failed with.

In: an error that may pass. Out: a code for machines and a sentence that names the part: Kafka,
Postgres, the object store, or this machine's disk.
"""

import errno
from dataclasses import dataclass

import asyncpg

from drivetrain_schemas.object_store import StoreFailure
from services.runtime.bus import BusUnavailable, PublishFailed
from services.runtime.errors import PostgresUnavailable, StoreError, TemporaryError


@dataclass(frozen=True, slots=True)
class Cause:
    code: str
    detail: str


KAFKA_SILENT = Cause(
    "bus_unavailable",
    "Kafka did not acknowledge the request in time, so it may or may not have been sent; "
    "send it again with the same request_id, which can never make a second one",
)
KAFKA_AWAY = Cause("bus_unavailable", "Kafka is unavailable, and nothing was sent; try again")
# For an operator to mend; the words of the other side may name addresses, and are in the log only.
KAFKA_REFUSES = Cause(
    "bus_unavailable",
    "Kafka refuses the gateway's login, or what it may not do; the gateway's log has the cause",
)
POSTGRES_REFUSES = Cause(
    "database_unavailable",
    "Postgres refuses the gateway's connection or statement; the gateway's log has the cause",
)
POSTGRES_SILENT = Cause("database_unavailable", "Postgres is unavailable; try again in a moment")
POSTGRES_READ_ONLY = Cause("database_read_only", "Postgres is read-only, probably a standby")
POSTGRES_FULL = Cause("database_full", "the disk of Postgres is full; free some space on it")
DISK_FULL = Cause("disk_full", "the disk of the gateway's machine is full; free some space on it")
DISK_READ_ONLY = Cause("disk_read_only", "a directory of the gateway's machine is read-only")
UNKNOWN = Cause("temporarily_unavailable", "a part of the platform is unavailable; try again")

_STORE = {
    StoreFailure.UNAVAILABLE: "is unavailable",
    StoreFailure.READ_ONLY: "is read-only, or refuses the platform what it may not do",
    StoreFailure.FULL: "is full",
    StoreFailure.ERROR: "failed",
}
_OF_DISK = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: DISK_READ_ONLY,
    errno.EACCES: DISK_READ_ONLY,
}


def cause_of(error: BaseException) -> Cause:
    if isinstance(error, StoreError):
        detail = f"the object store {_STORE[error.failure]}; everything that needs no files works"
        return Cause(error.failure.value, detail)
    if isinstance(error, PublishFailed):
        if "refuses" in str(error) or "AuthorizationFailed" in str(error):
            return KAFKA_REFUSES
        return KAFKA_AWAY if isinstance(error, BusUnavailable) else KAFKA_SILENT
    if isinstance(error, asyncpg.DiskFullError):
        return POSTGRES_FULL
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return POSTGRES_READ_ONLY
    if isinstance(error, OSError) and error.errno in _OF_DISK:
        return _OF_DISK[error.errno]
    if isinstance(error, PostgresUnavailable | asyncpg.InsufficientPrivilegeError):
        return POSTGRES_READ_ONLY if "read-only" in str(error) else POSTGRES_REFUSES
    if isinstance(error, TemporaryError):
        return UNKNOWN
    # What is left comes from the only connections that routes open themselves.
    return POSTGRES_SILENT
