"""What the gateway shows, written by SQL: a long history of which pages show the end, or little of
which they show all.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template

from services.gateway.live import Live
from services.runtime.database import Database
from services.runtime.service import Platform
from tests.conftest import OpenDatabase
from tests.handlers.gateway.model import Model, Server, serving

LONG_STUDY = "study_" + "q" * 26
# How many are open in a history, however long it is; more than a page shows of each.
NUM_OPEN = 100
STATEMENTS = Template(Path(__file__).with_suffix(".sql").read_text())


def job(number: int) -> str:
    return "job_" + _characters(number)


def study(number: int) -> str:
    return "study_" + _characters(number)


def _characters(number: int) -> str:
    return str(number).zfill(26).translate(str.maketrans("0189", "abcd"))


async def history(database: OpenDatabase, size: int) -> Model:
    """So many jobs, nodes, alerts and the like, most of which are over."""
    values = {
        "saved": size // 10,
        "events": 20,
        "group": "n % 5",
        "trials": size * 4 // 5,
        "rungs": 64,
    }
    return await _filled(database, num=size, open=NUM_OPEN, **values)


async def little(database: OpenDatabase, size: int) -> Model:
    """So many of all that a page shows, and nothing else: all jobs run."""
    values = {"saved": size, "events": size, "group": "n", "trials": size, "rungs": size}
    return await _filled(database, num=size, open=size, **values)


async def _filled(database: OpenDatabase, **values: int | str) -> Model:
    db: Database = await database("gateway")
    async with db.transaction() as tx:
        await tx.connection.execute(STATEMENTS.substitute(values, long_study=LONG_STUDY))
    async with db.connection() as connection:
        await connection.execute("analyze")
    model = Model(db)
    model.live = _Unfollowed()
    return model


@asynccontextmanager
async def servers(models: dict[int, Model]) -> AsyncIterator[dict[int, Server]]:
    """The HTTP side of each."""
    first, second = models
    async with serving(models[first]) as one, serving(models[second]) as other:
        yield {first: one, second: other}


class _Unfollowed(Live):
    """Its reads, twice a second, would be counted with those of the pages."""

    async def follow(self, platform: Platform) -> None:
        return
