"""Waits, restarts and slot-time, as the loop measures them, on a real Postgres."""

from prometheus_client import REGISTRY

from drivetrain_schemas.ids import job_id_for, pod_id_for
from tests.handlers.scheduler.world import World, make_submit, start

JOB = job_id_for("default", "r1")


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"drivetrain_scheduler_{name}", labels) or 0.0


async def test_a_run_that_fails_is_restarted_and_each_phase_is_measured(world: World) -> None:
    phases = ("wait", "start", "restart")
    before = [value("recovery_seconds_count", phase=phase) for phase in phases]
    failed = value("slot_seconds_total", pool="default", outcome="failed")
    waits = value("wait_seconds_count", pool="default", reason="none")
    await start(world, retries={"limit": 1, "backoff_seconds": 0})
    assert value("wait_seconds_count", pool="default", reason="none") == waits + 1
    assert [value("recovery_seconds_count", phase=phase) for phase in phases] == before

    world.launcher.end(pod_id_for(JOB, 1, 0), "failed", exit_code=1)
    await world.rounds()

    assert [value("recovery_seconds_count", phase=phase) for phase in phases] == [
        count + 1 for count in before
    ]
    assert value("slot_seconds_total", pool="default", outcome="failed") > failed


async def test_a_wait_is_counted_under_the_reason_that_was_told(world: World) -> None:
    labels = {"pool": "default", "reason": "no_free_devices"}
    before = value("wait_seconds_count", **labels)
    await world.submit(
        make_submit("r1", resources={"devices": 4}), make_submit("r2", resources={"devices": 4})
    )
    await world.rounds()
    assert value("waiting_jobs", **labels) == 1
    for number in (0, 1):
        world.launcher.end(pod_id_for(JOB, 1, number))
    await world.rounds()
    assert value("wait_seconds_count", **labels) == before + 1
    assert value("waiting_jobs", **labels) == 0
