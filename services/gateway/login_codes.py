"""Unused sign-in links. Not rebuilt: a rebuild deletes them."""

from datetime import datetime

import asyncpg

Connection = asyncpg.Connection


async def insert(connection: Connection, code_sha256: str, expires_at: datetime) -> None:
    await connection.execute(
        "insert into login_codes (code_sha256, expires_at) values ($1, $2)", code_sha256, expires_at
    )


async def take(connection: Connection, code_sha256: str, now: datetime) -> bool:
    """True once: the code exists and has not expired; this call deletes it."""
    taken = await connection.fetchval(
        "delete from login_codes where code_sha256 = $1 returning expires_at > $2",
        code_sha256,
        now,
    )
    return bool(taken)


async def remove_expired(connection: Connection, now: datetime) -> None:
    await connection.execute("delete from login_codes where expires_at <= $1", now)
