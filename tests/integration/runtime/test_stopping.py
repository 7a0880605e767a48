"""A service stops on request, whatever it waits for, and abandons what does not end."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.envelope import Event
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import service as service_module
from services.runtime.errors import ConfigurationError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.service import Platform, Running, Service, rebuild, run
from services.runtime.transaction import Tx
from services.runtime.watchdog import Stuck
from services.standalone.ports import free_port
from tests.integration.runtime.cost import cost, releases, until_charged
from tests.platform_service import produce, running, service_environment


def cost_at(kafka_port: int, dsn: str, **settings: Any) -> Service:
    nowhere = KafkaAccess(f"127.0.0.1:{kafka_port}", "drivetrain", "secret")
    return build(CostSettings(**service_environment(nowhere, dsn, "nowhere."), **settings))


async def stopped_after(service: Service, seconds: float) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stopping.set)
    async with asyncio.timeout(30):
        await Running(service, stopping).run()


async def test_it_stops_while_it_waits_for_postgres() -> None:
    dsn = f"postgresql://drivetrain:secret@127.0.0.1:{free_port()}/drivetrain"
    await stopped_after(cost_at(free_port(), dsn), 0.2)


async def test_a_rebuild_says_why_postgres_cannot_be_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = cost_at(1, f"postgresql://x:y@127.0.0.1:{free_port()}/z")
    assert await rebuild(replace(service, is_projection=True)) == 1
    assert "not rebuilt, Postgres cannot be used" in capsys.readouterr().err


async def test_it_stops_while_it_waits_for_kafka(postgres_dsn: str) -> None:
    await stopped_after(cost_at(free_port(), postgres_dsn), 0.5)


async def test_a_handler_that_does_not_end_is_abandoned_and_its_event_comes_again(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    hurried = service.settings.model_copy(update={"shutdown_seconds": 0.2})
    entered = asyncio.Event()
    handle_batch = service.handle_batch
    assert handle_batch is not None

    async def hangs(tx: Tx, events: Sequence[Event[Any]]) -> None:
        await handle_batch(tx, events)
        entered.set()
        await asyncio.Event().wait()

    hanging = replace(service, settings=hurried, handle_batch=hangs)
    (event,) = releases(1)
    await produce(kafka, topic_prefix, event)
    async with running(hanging):
        await entered.wait()
    async with running(service):
        charges = await until_charged(kafka, topic_prefix, [event.event_id])
    assert len(charges) == 1


async def test_what_was_emitted_last_leaves_before_the_process_does(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    (event,) = releases(1)
    (handler,) = (it for kind, it in service.handlers.items() if kind is AllocationReleased)
    async with running(service) as process:
        async with process.platform.database.transaction() as tx:
            await handler(tx, event)
        process.platform.stopping.set()
    await until_charged(kafka, topic_prefix, [event.event_id])


async def test_a_task_that_ends_by_itself_ends_the_service(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    async def ends(platform: Platform) -> None:
        return None

    service = replace(await cost(kafka, postgres_dsn, topic_prefix), tasks=(ends,))
    with pytest.raises(ExceptionGroup) as failed:
        await Running(service, asyncio.Event()).run()
    assert failed.group_contains(RuntimeError, match="ended unexpectedly")


@pytest.mark.parametrize(
    ("failure", "want_code"),
    [
        pytest.param(None, 0, id="stopped in order"),
        pytest.param(ValueError("bug"), 1, id="a bug"),
        pytest.param(ConfigurationError("wrong"), 2, id="a wrong setting"),
        pytest.param(ExceptionGroup("", [Stuck("still")]), 70, id="a stuck consumer"),
        pytest.param(
            ExceptionGroup("", [Stuck("still"), OSError("closing")]), 70, id="stuck, and more"
        ),
    ],
)
async def test_the_exit_code_says_why(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None, want_code: int
) -> None:
    class Played:
        def __init__(self, service: Service, stopping: asyncio.Event) -> None: ...

        async def run(self) -> None:
            if failure is not None:
                raise failure

    monkeypatch.setattr(service_module, "Running", Played)
    try:
        assert await run(cost_at(1, "postgresql://x")) == want_code
    finally:  # its process would have ended; forks of this one would not be ended by a signal
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
