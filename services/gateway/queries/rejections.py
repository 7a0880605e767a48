"""Refused commands."""

from services.gateway.queries.rows import Connection, Row, as_row


async def find(connection: Connection, command_event_id: str, subject_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from rejections where command_event_id = $1 and subject_id = $2",
            command_event_id,
            subject_id,
        )
    )
