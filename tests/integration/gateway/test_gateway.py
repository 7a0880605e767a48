"""The gateway on the real broker and the real Postgres: events in, commands out, and a rebuild."""

import asyncio
from typing import Any

import asyncpg
import httpx

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSubmit
from services.gateway.model_age import HEADER
from services.gateway.settings import GatewaySettings
from services.gateway.wiring import build
from services.runtime.bus import OutRecord
from services.runtime.database import Database
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.service import rebuild
from services.runtime.topics import create_topics
from services.runtime.transaction import Origin
from services.standalone.ports import free_port
from tests.handlers.gateway.model import COOKIE_SECRET, TOKEN, Model
from tests.handlers.gateway.story import TENANT, day, spec
from tests.platform_service import produce, read_events, running, service_environment

SECRETS = {"api_token": TOKEN, "cookie_secret": COOKIE_SECRET}


async def test_commands_go_out_and_a_rebuild_gives_the_same_tables(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await create_topics(kafka, topic_prefix)
    story = list(day())
    environment = service_environment(kafka, postgres_dsn, topic_prefix)
    port = free_port()
    settings = GatewaySettings.model_validate({**environment, **SECRETS, "http_port": port})
    base_url = f"http://127.0.0.1:{port}"
    assert await rebuild(build(settings)) == 0  # another test may have left its schema
    await produce(kafka, topic_prefix, *story)
    job = spec("asked").model_dump(mode="json", exclude_none=True)
    job_id = job_id_for(TENANT, "asked")
    async with (
        running(build(settings)) as process,
        httpx.AsyncClient(
            base_url=base_url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False
        ) as client,
    ):
        answer = await client.post("/v1/jobs", json={"request_id": "asked", "spec": job})
        assert (answer.status_code, answer.json()["state"]) == (202, "submitted")
        assert (await client.get(f"/jobs/{job_id}")).status_code == 200
        (command,) = await read_events(kafka, f"{topic_prefix}commands.jobs", at_least=1)
        assert isinstance(command.payload, JobSubmit)
        assert command.payload.job_id == job_id
        first, generation = await settled(postgres_dsn, story)
        async with asyncio.timeout(30):
            while (await client.get("/v1/jobs")).headers[HEADER] != "0":
                await asyncio.sleep(0.1)
        assert len(process.platform.consumers) == 2
        assert all(consumer.handled_at for consumer in process.platform.consumers)

    assert await rebuild(build(settings)) == 0
    async with running(build(settings)):
        again, next_generation = await settled(postgres_dsn, story)
    assert again == first
    assert any(job_id in row for row in again["jobs"])
    assert next_generation != generation


async def settled(dsn: str, story: list[Event[Any]]) -> tuple[dict[str, list[str]], str]:
    """The tables, once every event, heartbeat and command is in them."""
    database = Database(dsn, "gateway", Origin("/drivetrain/gateway", "drivetrain."))
    await database.open(["services.gateway"])
    model = Model(database)
    try:
        async with asyncio.timeout(60):
            while not await is_complete(model, story):
                await asyncio.sleep(0.1)
        stream = await model.rows("select generation from stream")
        return await model.tables(), stream[0]["generation"]
    finally:
        await database.close()


async def is_complete(model: Model, story: list[Event[Any]]) -> bool:
    """Every kind of record that the story holds has arrived."""
    wanted: dict[str, Any] = {
        "select count(*) as n from timeline": sum(event.seq is not None for event in story),
        "select count(*) as n from jobs where state = 'submitted'": 1,
        "select count(*) as n from job_progress where step >= 250": 2,
    }
    try:
        counts = {query: (await model.rows(query))[0]["n"] for query in wanted}
    except asyncpg.UndefinedTableError:
        return False
    return counts == wanted


async def test_hundreds_of_parked_records_are_replayed_and_discarded_through_the_broker(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """Garbage on events.jobs is parked by the gateway itself; it stays garbage when replayed."""
    await create_topics(kafka, topic_prefix)
    environment = service_environment(kafka, postgres_dsn, topic_prefix)
    port = free_port()
    settings = GatewaySettings.model_validate({**environment, **SECRETS, "http_port": port})
    assert await rebuild(build(settings)) == 0
    publisher = KafkaPublisher(kafka, "tests")
    topic = f"{topic_prefix}events.jobs"
    await publisher.publish([OutRecord(topic, b"%d" % n, b"\xff%d" % n, ()) for n in range(300)])
    await publisher.close()
    known = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://127.0.0.1:{port}"
    async with (
        running(build(settings)),
        httpx.AsyncClient(base_url=url, headers=known, trust_env=False, timeout=30) as client,
    ):
        groups = await parked_groups(client, 300, "open")
        assert groups[0]["reason"] == "not_json"
        answer = await client.post("/v1/parked/replay", json={"reason": "not_json"})
        assert answer.json()["num_records"] == 300
        # The gateway reads them again and fails again: the same records, now with two parkings.
        await parked_groups(client, 300, "open")
        async with asyncio.timeout(30):
            while True:
                page = (await client.get("/v1/parked", params={"limit": 500})).json()["records"]
                if len(page) == 300 and all(one["has_failed_again"] for one in page):
                    break
                await asyncio.sleep(0.1)
        assert {one["num_parkings"] for one in page} == {2}
        answer = (await client.post("/v1/parked/discard", json={})).json()
        assert (answer["num_records"], answer["is_confirmed"]) == (300, True)
        assert await parked_groups(client, 0, "open") == []
    events = await read_events(kafka, f"{topic_prefix}events.parked", at_least=2)
    assert [event.type for event in events] == ["parked.replayed", "parked.discarded"]


async def parked_groups(client: httpx.AsyncClient, number: int, state: str) -> list[dict[str, Any]]:
    """The groups, once they count so many records."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.get("/v1/parked/groups", params={"state": state})
            groups: list[dict[str, Any]] = answer.json()["groups"]
            if sum(group["num_records"] for group in groups) == number:
                return groups
            await asyncio.sleep(0.1)
