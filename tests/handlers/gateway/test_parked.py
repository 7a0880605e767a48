"""Parked records at scale: filters, groups, bulk decisions, and what a failed replay looks like."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivetrain_schemas.envelope import MAX_EVENT_BYTES, Event, encode
from drivetrain_schemas.parked import (
    MAX_RECORDS,
    ParkedDiscarded,
    ParkedRecord,
    ParkedReplayed,
)
from services.gateway import parked_commands, parked_queries
from services.gateway.parked import PARKED_RULE
from services.gateway.parked_queries import Selection
from services.runtime.clock import SystemClock
from services.runtime.retention import Retention
from tests.conftest import OpenDatabase
from tests.handlers.gateway.command_line import drivetrain, on_a_port
from tests.handlers.gateway.model import PREFIX, TENANT_HEADER, Model, Server, serving

MANY = 100_000
# Recent enough to be replayed.
FIRST_PARKED = datetime.now(UTC) - timedelta(days=2)


async def listed(server: Server, **query: Any) -> list[dict[str, Any]]:
    answer = await server.client.get("/v1/parked", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


async def park_again(model: Model, server: Server, parked_id: str) -> None:
    """The scheduler reads the replayed record and fails on it again."""
    record = server.bus.records(f"{PREFIX}commands.jobs")[-1]
    assert await model.park(record.value, headers=record.headers[2:]) == parked_id


async def test_a_parked_record_is_replayed_as_it_was(model: Model) -> None:
    parked_id = await model.park(b"\xff not json")
    foreign = await model.park(b"{}", topic="no.such.topic")
    async with serving(model) as server:
        assert {one["parked_id"] for one in await listed(server)} == {parked_id, foreign}
        record = (await server.client.get(f"/v1/parked/{parked_id}")).json()
        assert record["value"]["base64"] == "/yBub3QganNvbg=="
        assert record["value"]["text"] is None
        assert [header["name"] for header in record["headers"]] == ["content-type", "ce_id"]
        answer = await server.client.post(f"/v1/parked/{parked_id}/replay")
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        (published,) = server.bus.records("drivetrain.commands.jobs")
        assert (published.key, published.value) == (b"key", b"\xff not json")
        assert dict(published.headers) == {
            "content-type": b"application/json",
            "ce_id": b"original",
            "x-parked-replay-of": parked_id.encode(),
        }
        assert {one["parked_id"] for one in await listed(server)} == {foreign}
        (shown,) = await listed(server, state="replayed")
        assert shown["replayed_at"] is not None
        assert (await server.client.post(f"/v1/parked/{foreign}/replay")).status_code == 409
        assert (await server.client.get("/v1/parked/parked_nothing")).status_code == 404


async def test_a_record_parked_too_long_ago_is_not_replayed(model: Model) -> None:
    """Services that handled it may no longer have a record of that."""
    parked_id = await model.park(b"broken")
    async with model.database.connection() as connection:
        await connection.execute("update parked set parked_at = '2020-01-01T00:00:00Z'")
    async with serving(model) as server:
        answer = await server.client.post(f"/v1/parked/{parked_id}/replay")
        assert (answer.status_code, "over 45 days ago" in answer.text) == (409, True)
        assert server.bus.records(f"{PREFIX}commands.jobs") == []


async def test_a_record_goes_with_that_on_its_topic_and_is_no_longer_counted(model: Model) -> None:
    old, kept = await model.park(b"old"), await model.park(b"new")
    async with model.database.connection() as connection:
        await connection.execute(
            "update parked set parked_at = now() - interval '46 days' where parked_id = $1", old
        )
        await connection.execute("update parked set parked_at = now() where parked_id = $1", kept)
    await Retention(model.database, PREFIX, SystemClock(), [PARKED_RULE]).prune()
    async with serving(model) as server:
        assert [one["parked_id"] for one in await listed(server)] == [kept]
        groups = (await server.client.get("/v1/parked/groups")).json()["groups"]
        assert [group["num_records"] for group in groups] == [1]


async def test_a_replay_that_fails_again_is_open_again_and_shown_as_such(model: Model) -> None:
    parked_id = await model.park(b"broken")
    async with serving(model) as server:
        await server.client.post(f"/v1/parked/{parked_id}/replay")
        await park_again(model, server, parked_id)
        (record,) = await listed(server)
        assert (record["has_failed_again"], record["num_parkings"]) == (True, 2)
        for path in ("/parked", f"/parked/{parked_id}"):
            assert "failed again" in (await server.client.get(path)).text
        groups = (await server.client.get("/v1/parked/groups")).json()["groups"]
        assert [group["num_records"] for group in groups] == [1]


async def test_a_discarded_record_leaves_the_list_and_stays_readable(model: Model) -> None:
    parked_id = await model.park(b"broken")
    async with serving(model) as server:
        answer = await server.client.post(
            f"/v1/parked/{parked_id}/discard", json={"note": "of a test client"}
        )
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        assert await listed(server) == []
        assert "badge" not in (await server.client.get("/")).text
        (record,) = await listed(server, state="discarded")
        assert record["decision_note"] == "of a test client"
        page = await server.client.get(f"/parked/{parked_id}")
        assert "of a test client" in page.text
        assert (await server.client.post(f"/v1/parked/{parked_id}/replay")).status_code == 202
        await park_again(model, server, parked_id)
        assert [one["parked_id"] for one in await listed(server)] == [parked_id]


async def test_records_are_filtered_and_grouped(model: Model) -> None:
    submit = (("ce_type", b"job.submit"),)
    await model.park(b"1", reason="not_json")
    await model.park(b"2", reason="too_large", headers=submit)
    await model.park(b"3", reason="too_large", topic="logs")
    await model.park(b"4", reason="too_large", headers=(("ce_type", b"made up by a client"),))
    async with serving(model) as server:
        assert len(await listed(server, reason="too_large")) == 3
        assert len(await listed(server, reason="too_large", topic="commands.jobs")) == 2
        assert len(await listed(server, topic=f"{PREFIX}logs")) == 1
        assert len(await listed(server, type="job.submit")) == 1
        assert len(await listed(server, type="")) == 3
        assert len(await listed(server, service="nobody")) == 0
        assert len(await listed(server, since="2126-01-01T00:00:00Z")) == 0
        assert len(await listed(server, until="2126-01-01T00:00:00Z")) == 4
        groups = (await server.client.get("/v1/parked/groups")).json()["groups"]
        counts = {
            (one["reason"], one["topic"], one["event_type"]): one["num_records"] for one in groups
        }
        assert counts == {
            ("not_json", "drivetrain.commands.jobs", ""): 1,
            ("too_large", "drivetrain.commands.jobs", "job.submit"): 1,
            ("too_large", "drivetrain.commands.jobs", ""): 1,
            ("too_large", "drivetrain.logs", ""): 1,
        }


async def test_a_bulk_decision_is_about_what_matches(model: Model) -> None:
    for number in range(5):
        await model.park(b"%d" % number, reason="not_json" if number % 2 else "too_large")
    unknown = await model.park(b"x", topic="no.such.topic")
    async with serving(model) as server:
        answer = await server.client.post("/v1/parked/replay", json={"reason": "too_large"})
        want = {"num_records": 3, "num_skipped": 0, "next": None, "is_confirmed": True}
        assert (answer.status_code, answer.json()) == (202, want)
        sent = server.bus.records(f"{PREFIX}commands.jobs")
        assert sorted(record.value or b"" for record in sent) == [b"0", b"2", b"4"]
        answer = await server.client.post("/v1/parked/replay", json={})
        assert (answer.json()["num_records"], answer.json()["num_skipped"]) == (2, 1)
        assert [one["parked_id"] for one in await listed(server)] == [unknown]


async def test_a_bulk_decision_works_for_a_bounded_time_and_returns_where_to_continue(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_commands, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(parked_commands, "MAX_RECORDS", 2)
    ids = {await model.park(b"%d" % number) for number in range(5)}
    async with serving(model) as server:
        numbers, body = [], {}
        while True:
            answer = (await server.client.post("/v1/parked/discard", json=body)).json()
            numbers.append(answer["num_records"])
            if answer["next"] is None:
                break
            body = {"after": answer["next"]}
        assert numbers == [2, 2, 1, 0]
        assert {one["parked_id"] for one in await listed(server, state="discarded")} == ids


async def test_any_order_of_records_and_decisions_gives_the_same_rows(
    database: OpenDatabase,
) -> None:
    """A rebuild reads the topics in another order than they were written."""
    first = Model(await database("gateway"))
    records: list[Any] = []
    put = first.put

    async def keep(record: Any) -> None:
        records.append(record)
        await put(record)

    first.put = keep  # type: ignore[method-assign]
    kept = [await first.park(b"%d" % number) for number in range(4)]
    async with serving(first) as server:
        await server.client.post(f"/v1/parked/{kept[0]}/replay")
        await park_again(first, server, kept[0])
        await server.client.post(f"/v1/parked/{kept[1]}/replay")
        await server.client.post("/v1/parked/discard", json={"until": "2126-01-01T00:00:00Z"})
    second = Model(await database("gateway"))
    of_parked = [one for one in records if "parked.scheduler" in one.topic]
    decisions = [one for one in records if one not in of_parked]
    assert decisions
    for record in decisions + of_parked + decisions:
        await second.put(record)
    for table in ("parked", "parked_groups"):
        assert (await second.tables())[table] == (await first.tables())[table]


async def test_the_buttons_of_the_page_decide_what_it_shows(model: Model) -> None:
    shown = await model.park(b"1", reason="not_json")
    await model.park(b"2", reason="too_large")
    async with serving(model) as server:
        page = (await server.client.get("/parked?reason=not_json&state=open")).text
        action = page.partition('action="/parked/discard?')[2].partition('"')[0]
        later = await model.park(b"3", reason="not_json")
        path = f"/parked/discard?{action.replace('&amp;', '&')}"
        answer = await server.client.post(path)
        assert answer.status_code == 303
        assert "1 record decided" in (await server.client.get(answer.headers["location"])).text
        assert [one["parked_id"] for one in await listed(server, state="discarded")] == [shown]
        assert later in {one["parked_id"] for one in await listed(server)}


@pytest.mark.parametrize("name", ["id", "service", "topic", "reason", "at", "offset", "detail"])
async def test_hostile_facts_of_a_parked_record_are_kept_and_bounded(
    model: Model, name: str
) -> None:
    """Longer than an index takes, and with what Postgres takes in no text."""
    await model.park(
        b"x", headers=((f"x-parked-{name}", b"\x00\xff" + b"\xf0\x9f\x98\x80" * 5000),)
    )
    for hostile in (b"", b"9" * 5000, b"9999-12-31T23:59:59-23:59", b"\x00" * 9000):
        await model.park_raw(((f"x-parked-{name}", hostile),))
    async with serving(model) as server:
        assert len(await listed(server)) >= 4
        assert (await server.client.get("/parked")).status_code == 200


@pytest.fixture
async def hundred_thousand(model: Model) -> Model:
    """Rows as `services.gateway.parked` writes them, made by Postgres itself."""
    async with model.database.connection() as connection:
        await connection.execute(
            """
            insert into parked (parked_id, tenant_id, service, topic, reason, event_type, detail,
                state, places, parked_at, partition, "offset", key, value, header_names,
                header_values)
            select 'parked_' || lpad(n::text, 26, 'a'), 'default', 'scheduler',
                'drivetrain.commands.jobs',
                case n % 1000 when 0 then 'crash_loop' else 'not_json' end, '', 'number ' || n,
                'open', array['drivetrain.commands.jobs/0/' || n],
                $2::timestamptz + n * interval '1 second', 0, n, 'key', 'not json',
                '{}', '{}'
            from generate_series(1, $1) as n
            """,
            MANY,
            FIRST_PARKED,
        )
        await connection.execute(
            """
            insert into parked_groups (tenant_id, service, topic, reason, event_type, num_open)
            select tenant_id, service, topic, reason, event_type, count(*) from parked
            group by 1, 2, 3, 4, 5
            """
        )
        await connection.execute("analyze parked")
    return model


async def test_a_page_of_a_hundred_thousand_reads_no_more_than_it_shows(
    hundred_thousand: Model,
) -> None:
    model = hundred_thousand
    async with serving(model) as server:
        page = await server.client.get("/parked")
        assert "100,000 records" in page.text
        assert ">99,900<" in page.text
        assert page.text.count("row-parked") == 50
        rare = (await server.client.get("/parked?reason=crash_loop")).text
        assert rare.count("row-parked") == 50
        seen: set[str] = set()
        after: str | None = None
        while after is not None or not seen:
            query = {"limit": 500, "reason": "crash_loop", **({"after": after} if after else {})}
            answer = (await server.client.get("/v1/parked", params=query)).json()
            seen |= {one["parked_id"] for one in answer["records"]}
            after = answer["next"]
        assert len(seen) == MANY / 1000
    last = FIRST_PARKED + timedelta(hours=12)
    for wanted in (
        Selection("default"),
        Selection("default", reason="crash_loop"),
        Selection("default", until=last),
    ):
        assert await _rows_read(model, wanted, (last, "parked_z")) < 1000, wanted


async def _rows_read(model: Model, wanted: Selection, after: Any) -> int:
    """Rows of `parked` that Postgres touches for one page."""
    # Counters of this connection that were not written yet may hold earlier reads as well.
    async with model.database.connection() as connection, connection.transaction():
        before = await connection.fetchval(_TOUCHED)
        await parked_queries.parked(connection, wanted, after, 50)
        return int(await connection.fetchval(_TOUCHED)) - int(before)


_TOUCHED = """
select seq_tup_read + coalesce(idx_tup_fetch, 0) as touched from pg_stat_xact_user_tables
where relname = 'parked' and schemaname = current_schema()
"""


@pytest.mark.heavy
async def test_the_command_line_manages_a_hundred_thousand(hundred_thousand: Model) -> None:
    model = hundred_thousand
    async with serving(model) as standing, on_a_port(standing) as environment:
        groups = await drivetrain(environment, "parked", "groups")
        assert [line.split()[-1] for line in groups.splitlines()[1:]] == ["99900", "100"]
        table = await drivetrain(environment, "parked", "list", "--limit", "1000")
        assert len(table.splitlines()) == 1001
        replayed = await drivetrain(
            environment, "parked", "replay", "--all", "--reason", "crash_loop"
        )
        assert replayed.startswith("100 records replayed")
        discarded = await drivetrain(environment, "parked", "discard", "--all")
        assert discarded.startswith("99,900 records discarded")
        assert "no parked records" in await drivetrain(environment, "parked", "list")
    decided = await model.rows("select state, count(*) as n from parked group by 1 order by 1")
    assert [(row["state"], row["n"]) for row in decided] == [
        ("discarded", 99_900),
        ("replayed", 100),
    ]
    sums = await model.rows(
        "select sum(num_open) as o, sum(num_replayed) as r, sum(num_discarded) as d"
        " from parked_groups"
    )
    assert [int(value) for value in sums[0].values()] == [0, 100, 99_900]


def test_a_decision_event_fits() -> None:
    """A thousand records are far below the limit of an event."""
    records = tuple(
        ParkedRecord(parked_id=f"parked_{number:0121}", num_parkings=2**31 - 1)
        for number in range(MAX_RECORDS)
    )
    decision_id = "decision_" + "a" * 26
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for payload in (
        ParkedReplayed(decision_id=decision_id, records=records, decided_at=now),
        ParkedDiscarded(decision_id=decision_id, records=records, decided_at=now, note="x" * 512),
    ):
        _, _, value = encode(Event("id", "/drivetrain/gateway", now, "default", payload, seq=1))
        assert len(value) < MAX_EVENT_BYTES


STRUCTURED = (("content-type", b"application/cloudevents+json"),)


@pytest.mark.parametrize(
    ("headers", "value", "owner"),
    [
        ((("ce_tenantid", b"vision"),), b"not json", "vision"),
        ((("CE_TenantId", b"vision"),), None, "vision"),
        (STRUCTURED, b'{"tenantid": "vision"}', "vision"),
        (STRUCTURED, b'{"tenantid": "vision"', "default"),
        ((), b'{"tenantid": "vision"}', "default"),
        ((("ce_tenantid", b"vision"), ("ce_tenantid", b"other")), b"{}", "default"),
        ((("ce_tenantid", b"Not A Name"),), b"{}", "default"),
        ((("ce_tenantid", b"\xff"),), b"{}", "default"),
        ((("ce_tenantid", None),), b"{}", "default"),
    ],
)
async def test_a_record_is_shown_to_the_tenant_that_it_names_or_to_operators(
    model: Model, server: Server, headers: Any, value: bytes | None, owner: str
) -> None:
    parked_id = await model.park(value, headers=headers)
    for tenant_id in ("default", "vision", "other"):
        caller = {TENANT_HEADER: tenant_id}
        expected = [parked_id] if tenant_id == owner else []
        answer = (await server.client.get("/v1/parked", headers=caller)).json()
        assert [one["parked_id"] for one in answer["records"]] == expected
        answer = (await server.client.get("/v1/parked?reason=not_json", headers=caller)).json()
        assert [one["parked_id"] for one in answer["records"]] == expected
        answer = (await server.client.get("/v1/parked/groups", headers=caller)).json()
        assert [one["num_records"] for one in answer["groups"]] == [1] * len(expected)
        for action in ("", "/replay", "/discard"):
            method = "POST" if action else "GET"
            path = f"/v1/parked/{parked_id}{action}"
            if tenant_id != owner:
                answer = await server.client.request(method, path, headers=caller)
                assert answer.status_code == 404
