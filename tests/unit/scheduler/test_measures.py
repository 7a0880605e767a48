"""What the scheduler measures of queue and devices; no series per job."""

from dataclasses import replace

from prometheus_client import REGISTRY

from drivetrain_schemas.envelope import Cause
from drivetrain_schemas.jobs import JobState, TrialOf
from services.scheduler.core.cycle import decide
from services.scheduler.core.mask import Mask, NodeRoom, Request
from services.scheduler.core.retries import Tries
from services.scheduler.measures import Measures, devices
from services.scheduler.state import State
from services.scheduler.store import JobRow
from tests.unit.scheduler.builders import NOW, make_holding, make_job, make_node, make_snapshot

NODES = (
    make_node("n1", slots=4, pool="gpus", device_type="h100"),
    make_node("n2", slots=2, pool="gpus", device_type="h100", unschedulable="cordoned"),
    make_node("n3", slots=8, is_removed=True),
)


def row(name: str, trial: TrialOf | None = None) -> JobRow:
    queued = make_job(name)
    return JobRow(
        job_id=queued.job_id, tenant_id="default", request_id=name, cause=Cause("e", None, None),
        trial=trial, kind=queued.kind, submission=1, state=JobState.RUNNING, num_runs=1,
        tries=Tries(3, 1, 60), not_before_at=None, announced=None, wish=None,
        wish_reason="", saves_last=True, change=1,
    )  # fmt: skip


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"drivetrain_scheduler_{name}", labels) or 0.0


def num_series() -> int:
    return sum(len(metric.samples) for metric in REGISTRY.collect())


def test_every_device_is_in_one_state_with_what_holds_it() -> None:
    trial = TrialOf(study_id="study_" + "a" * 26, number=1)
    away = replace(make_holding("away", ("n2", 0)), unreachable=("n2",))
    snapshot = make_snapshot(
        NODES,
        holdings=[make_holding("a", ("n1", 0), ("n1", 1)), make_holding("t", ("n1", 2)), away],
    )
    jobs = {it.job_id: it for it in (row("a"), row("t", trial), row("away"))}
    found = devices(snapshot.occupancy, jobs)
    assert {labels: number for labels, number in found.items() if number} == {
        ("gpus", "h100", "held", "job"): 2,
        ("gpus", "h100", "held", "trial"): 1,
        ("gpus", "h100", "free", "none"): 1,
        ("gpus", "h100", "unreachable", "job"): 1,
        ("gpus", "h100", "closed", "none"): 1,
    }


def test_devices_that_others_leave_no_room_for_are_not_free() -> None:
    cpu = Request({"cpu": 1000})
    mask = Mask({"n1": NodeRoom({"cpu": 4000}, {"cpu": 1500})}, cpu, cpu)
    held = make_snapshot(NODES, holdings=[make_holding("a", ("n1", 0))]).occupancy
    found = devices(replace(held, mask=mask), {})
    assert {labels[2]: number for labels, number in found.items() if number} == {
        "held": 1,
        "free": 1,
        "no_room": 2,
        "closed": 2,
    }


def test_ten_thousand_jobs_add_no_series_whatever_pools_they_name() -> None:
    def report(number: int) -> None:
        waiting = [make_job(f"w{it}", submission=it, pool=f"of-{it}") for it in range(number)]
        waiting += [make_job(f"g{it}", devices=5, pool="gpus") for it in range(number)]
        snapshot = make_snapshot(NODES, waiting, [make_holding("a", ("n1", 0))])
        measures.report(State(snapshot=snapshot), decide(snapshot, NOW))

    measures = Measures()
    report(10)
    before = num_series()
    report(5_000)
    assert num_series() == before
    assert value("waiting_jobs", pool="unknown", reason="pool_without_nodes") == 5_000
    in_gpus = [
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "drivetrain_scheduler_waiting_jobs" and sample.labels["pool"] == "gpus"
    ]
    assert sum(in_gpus) == 5_000


def test_what_no_longer_waits_or_is_held_is_no_longer_told() -> None:
    measures = Measures()
    full = make_snapshot(
        NODES, [make_job("w", devices=4, pool="gpus")], [make_holding("a", ("n1", 0))]
    )
    measures.report(State(snapshot=full), decide(full, NOW))
    assert value("waiting_jobs", pool="gpus", reason="gang_incomplete") == 1
    assert value("devices", pool="gpus", device_type="h100", state="held", holder="job") == 1
    empty = make_snapshot(NODES)
    measures.report(State(snapshot=empty), decide(empty, NOW))
    assert value("waiting_jobs", pool="gpus", reason="gang_incomplete") == 0
    assert value("devices", pool="gpus", device_type="h100", state="held", holder="job") == 0
    assert value("devices", pool="gpus", device_type="h100", state="free", holder="none") == 4


def test_what_there_is_none_of_is_told_as_none() -> None:
    full = make_snapshot(NODES[:1], [], [make_holding("a", *(("n1", it) for it in range(4)))])
    assert devices(full.occupancy, {}) == {
        ("gpus", "h100", "held", "job"): 4,
        ("gpus", "h100", "held", "trial"): 0,
        ("gpus", "h100", "free", "none"): 0,
    }
