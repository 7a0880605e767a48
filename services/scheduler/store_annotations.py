"""The table of annotations; a job without a row has the tags and the project of its spec."""

import json

import asyncpg

from services.scheduler.core.annotations import Annotation


async def of_job(connection: asyncpg.Connection, job_id: str) -> Annotation:
    """Of a job that exists."""
    row = await connection.fetchrow(
        """select coalesce(annotations.tags, spec::jsonb -> 'tags', '[]')::text as tags,
            coalesce(note, '') as note,
            case when annotations.job_id is null then spec::jsonb ->> 'project'
                else annotations.project end as project
        from jobs left join annotations using (job_id) where job_id = $1""",
        job_id,
    )
    assert row is not None
    return Annotation(tuple(json.loads(row["tags"])), row["note"], row["project"])


async def put(connection: asyncpg.Connection, job_id: str, annotation: Annotation) -> None:
    await connection.execute(
        """insert into annotations (job_id, tags, note, project)
        values ($1, $2::text::jsonb, $3, $4)
        on conflict (job_id) do update
            set tags = excluded.tags, note = excluded.note, project = excluded.project""",
        job_id,
        json.dumps(annotation.tags),
        annotation.note,
        annotation.project,
    )
