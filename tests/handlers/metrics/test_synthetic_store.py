"""The store that the benchmark of queries builds is one that the service reads."""

from benchmarks import metrics_query
from benchmarks.synthetic_store import NUM_SERIES, build, size_of
from tests.conftest import OpenDatabase
from tests.fakes import InMemoryObjectStore


async def test_a_small_store_answers_every_kind_of_query(database: OpenDatabase) -> None:
    db = await database("metrics")
    store = InMemoryObjectStore()
    size = size_of(400_000)
    await build(db, store, size)
    found = await metrics_query.measure_ours(db, store, size, rounds=1)
    assert len(found) == 3
    assert len(await store.list("cold/series/")) == size.num_jobs * NUM_SERIES
    async with db.connection() as connection:
        assert await metrics_query.bytes_per_point(connection, size) < 100
