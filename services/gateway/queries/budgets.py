"""The budgets of a tenant."""

from services.gateway.queries.rows import Connection, Row, as_row, as_rows


async def present(connection: Connection, tenant_id: str) -> list[Row]:
    """By name; a tenant has a hundred at most."""
    rows = await connection.fetch(
        "select * from budgets where tenant_id = $1 and not is_removed order by name", tenant_id
    )
    return as_rows(rows)


async def find(connection: Connection, tenant_id: str, name: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from budgets where tenant_id = $1 and name = $2 and not is_removed",
            tenant_id,
            name,
        )
    )
