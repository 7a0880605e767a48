"""Recommendations from the shares of jobs: of the tenant's own jobs, in the days asked for."""

from types import SimpleNamespace
from typing import Any

import httpx

from services.cost.api import read_api
from tests.conftest import OpenDatabase
from tests.handlers.cost.test_chargeback import BOOK

SHARES = """
insert into job_shares values
    ('2026-02-01', 'default', 'gpu', 'vision', 'job_a', 'productive', 1, 60000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_a', 'checkpointing', 1, 40000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_b', 'lost', 1, 80000000),
    ('2026-02-03', 'default', 'gpu', 'vision', 'job_b', 'lost', 1, 80000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_c', 'productive', 1, 80000000),
    ('2026-02-02', 'default', 'gpu', 'speech', 'job_d', 'lost', 1, 80000000);
insert into jobs (job_id, name) values ('job_a', 'digits');
"""


async def test_the_largest_saving_comes_first(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(SHARES)
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        path = "/recommendations/vision"
        answer = await client.get(path, params={"first": "2026-02-01", "last": "2026-02-02"})
        refused = await client.get(path, params={"first": "2026-02-01", "last": "2026-06-02"})
    assert refused.status_code == 422
    found = answer.json()["recommendations"]
    assert [(it["job_id"], it["job_name"], it["kind"], it["saving_micro_usd"]) for it in found] == [
        ("job_b", None, "more_checkpoints", 76_000_000),
        ("job_a", "digits", "fewer_checkpoints", 35_000_000),
    ]
