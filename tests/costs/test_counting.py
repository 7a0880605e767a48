"""What the counting itself finds."""

import pytest

from services.scheduler.core.ports import next_port
from tests.conftest import OpenDatabase
from tests.costs.counting import Growth, Runs, measure
from tests.costs.rows import analyze
from tests.costs.statements import recorded


async def growth_of(lines, inside_c, size: int) -> Growth:
    """Of a path that executes so many lines of the product and adds up so many numbers."""

    async def scenario(size: int) -> Runs:
        while True:
            yield lambda: ([next_port(1) for _ in range(lines(size))], sum(range(inside_c(size))))

    return await measure(scenario, size)


async def test_a_product_of_two_inputs_is_not_linear() -> None:
    growth = await growth_of(lambda size: size * size, lambda size: 0, 20)
    with pytest.raises(AssertionError, match=r"lines grow from 400 to 6400(.|\n)*core/ports.py"):
        growth.assert_linear()


async def test_neither_is_one_inside_c() -> None:
    growth = await growth_of(lambda size: size, lambda size: size * size, 500)
    with pytest.raises(AssertionError, match=r"^cpu grow"):
        growth.assert_linear()


async def test_what_grows_with_its_input_is_linear_and_not_flat() -> None:
    growth = await growth_of(lambda size: size, lambda size: 10 * size, 1000)
    growth.assert_linear()
    with pytest.raises(AssertionError, match="lines grow from 1000 to 4000"):
        growth.assert_flat("lines")


async def test_a_size_at_which_nothing_grows_shows_nothing() -> None:
    growth = await growth_of(lambda size: 1000, lambda size: 100_000, 10)
    growth.assert_flat()
    with pytest.raises(AssertionError, match="take a larger size"):
        growth.assert_linear()


async def test_every_statement_is_recorded_with_the_rows_it_reads(database: OpenDatabase) -> None:
    db = await database("cost")
    by_number = 'select * from inbox where "offset" = any($1::bigint[])'
    async with db.connection() as connection:
        await connection.execute(
            """insert into inbox (digest, topic, partition, "offset")
            select sha256(number::text::bytea), 't', 0, number
            from generate_series(1, 100) number"""
        )
        await analyze(db)
        with recorded() as statements:
            await connection.fetch("select * from inbox where digest = sha256('7')")
            await connection.fetchval("select count(*) from inbox")
            await connection.fetch(by_number, [1, 2, 3])
            await connection.executemany("delete from inbox where digest = $1", [(b"a",), (b"b",)])
            async with connection.transaction():
                async for _ in connection.cursor("select * from inbox limit 10"):
                    pass
            await connection.execute("delete from inbox")
            await connection.copy_records_to_table("rewound", records=[("g", "t", 1)])
        left = await connection.fetchval("select count(*) from inbox")
    assert left == 0
    assert statements.sent.total() == 10, "with begin, commit, and one of each batch"
    assert dict(statements.rows) == {
        "select * from inbox where digest = sha256('7')": 1,
        "select count(*) from inbox": 100,
        by_number: 100,
        "delete from inbox where digest = $1": 2,
        "select * from inbox limit 10": 10,
        "delete from inbox": 100,
    }
