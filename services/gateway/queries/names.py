"""What a name or the beginning of an id may mean."""

from dataclasses import dataclass

from services.gateway.queries.rows import Connection, Row, as_rows

# The lowest and the highest character of an id in every collation.
_LOWEST, _HIGHEST = "2", "z"
ID_CHARACTERS = 26


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing with ids: its table, and the field and the prefix of its ids.

    `named`: the condition that a request with its name fulfils; "" where it has no name.
    """

    table: str
    column: str
    prefix: str
    named: str = ""
    condition: str = ""


KINDS = {
    "job": Kind("jobs", "job_id", "job_", named="pool is not null"),
    "study": Kind("studies", "study_id", "study_", named="sampler is not null"),
    "checkpoint": Kind("checkpoints", "checkpoint_id", "ckpt_", condition="and is_usable"),
}


async def by_name(
    connection: Connection, kind: Kind, tenant_id: str, name: str, limit: int
) -> list[Row]:
    """The newest ones with exactly this name."""
    if not kind.named:
        return []
    column = f"{kind.table}.{kind.column}"
    rows = await connection.fetch(
        f"""
        select subject_id as id, name, state, true as is_name
        from requests join {kind.table} on {column} = subject_id
        where {kind.named} and name = $2 and tenant_id = $1
        order by asked_at desc, subject_id limit $3
        """,
        tenant_id,
        name,
        limit,
    )
    return as_rows(rows)


async def by_beginning(
    connection: Connection, kind: Kind, tenant_id: str, beginning: str, limit: int
) -> list[Row]:
    """Those whose id begins with this; its prefix (`job_`) may be left out.

    Bounds of full length use the primary key in every collation, unlike a pattern.
    """
    column = f"{kind.table}.{kind.column}"
    body = beginning.removeprefix(kind.prefix)
    name = "requests.name" if kind.named else "null"
    state = "null" if kind.condition else "state"
    rows = await connection.fetch(
        f"""
        select {column} as id, {name} as name, {state} as state, false as is_name
        from {kind.table} left join requests on subject_id = {column}
        where tenant_id = $1 and {column} between $2 and $3 {kind.condition}
        order by {column} limit $4
        """,
        tenant_id,
        kind.prefix + body.ljust(ID_CHARACTERS, _LOWEST),
        kind.prefix + body.ljust(ID_CHARACTERS, _HIGHEST),
        limit,
    )
    return as_rows(rows)
