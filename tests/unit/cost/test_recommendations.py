"""Recommendations name a saving and its evidence, and nothing where all is well."""

from dataclasses import replace

import pytest

from services.cost.core.fewer_devices import Done, fewer_devices
from services.cost.core.prices import SlotKind
from services.cost.core.recommendations import (
    JobShares,
    LowUse,
    busier_devices,
    idle_slots,
    ordered,
    recommendations,
)
from services.cost.core.spot_nodes import Lost, OnDemand, SpotPool, spot_nodes

DOLLAR = 1_000_000


def job(productive: int, checkpointing: int = 0, lost: int = 0) -> JobShares:
    return JobShares("job", "digits", productive, checkpointing, 0, lost)


def test_a_job_that_saves_little_and_loses_little_is_well() -> None:
    assert recommendations(job(94 * DOLLAR, 3 * DOLLAR, 3 * DOLLAR)) == []
    assert recommendations(job(0)) == []


def test_what_is_above_a_twentieth_could_be_saved() -> None:
    (found,) = recommendations(job(70 * DOLLAR, 30 * DOLLAR))
    assert (found.kind, found.saving_micro_usd) == ("fewer_checkpoints", 25 * DOLLAR)
    assert "30.0 %" in found.evidence
    (found,) = recommendations(job(50 * DOLLAR, lost=50 * DOLLAR))
    assert (found.kind, found.saving_micro_usd) == ("more_checkpoints", 45 * DOLLAR)
    assert "50.0 %" in found.evidence


def test_less_than_a_cent_is_not_told() -> None:
    for fields in ({"lost": 10_526}, {"checkpointing": 10_526}):
        (found,) = recommendations(job(0, **fields))
        assert found.saving_micro_usd == 10_000
    assert recommendations(job(0, lost=10_525)) == []
    assert recommendations(job(0, checkpointing=10_525)) == []


def test_little_use_of_devices_is_told_from_a_cent_on() -> None:
    low = LowUse("job", "digits", 12.0, 30.0, 75.0, 20 * DOLLAR, 12 * DOLLAR)
    (found,) = busier_devices(low)
    assert (found.kind, found.saving_micro_usd) == ("busier_devices", 12 * DOLLAR)
    assert "12.0 slot hours ($20.00)" in found.evidence
    (short,) = busier_devices(replace(low, slot_hours=0.0025, micro_usd=15_432))
    assert "0.15 slot minutes ($0.0154)" in short.evidence
    assert busier_devices(replace(low, saving_micro_usd=10_000)) != []
    assert busier_devices(replace(low, saving_micro_usd=9_999)) == []


def test_time_without_a_step_is_told_instead_of_little_use_at_the_same_time() -> None:
    low = LowUse("job", "digits", 12.0, 0.0, 75.0, 20 * DOLLAR, 20 * DOLLAR)
    idle = replace(low, slot_hours=14.0, micro_usd=23 * DOLLAR, saving_micro_usd=23 * DOLLAR)
    other = replace(low, job_id="other", saving_micro_usd=DOLLAR)
    found = ordered([*busier_devices(low), *busier_devices(other), *idle_slots(idle)])
    assert [(it.job_id, it.kind) for it in found] == [
        ("job", "idle_slots"),
        ("other", "busier_devices"),
    ]
    assert "14.0 slot hours ($23.00)" in found[0].evidence
    assert idle_slots(replace(idle, saving_micro_usd=10_000)) != []
    assert idle_slots(replace(idle, saving_micro_usd=9_999)) == []


GPU = SlotKind("default", "gpu")


def done(
    num_slots: int, dollars: float, hours: float, command: str = "train", kind: SlotKind = GPU
) -> Done:
    name = f"{command} {num_slots}"
    return Done(name, name, command, kind, num_slots, round(dollars * DOLLAR), hours * 3600)


ON_EIGHT = [done(8, dollars, 0.5) for dollars in (10, 11, 12)]
ON_TWO = [done(2, dollars, 1.5) for dollars in (6, 6, 6, 1)]


def test_a_command_that_costs_less_on_fewer_slots_is_told_with_both_times() -> None:
    (found,) = fewer_devices([*ON_EIGHT, *ON_TWO, *[done(16, 1, 0.1)] * 3])
    assert (found.job_id, found.kind, found.saving_micro_usd) == (
        "train 8",
        "fewer_devices",
        (10 + 11 + 12 - 3 * 6) * DOLLAR,
    )
    assert "3 jobs of this command on 8 slots cost $11.00 and took 30.0 min" in found.evidence
    assert "4 on 2 slots cost $6.00 and took 1.5 h" in found.evidence
    assert found.advice.startswith("ask for 2 devices")


def test_a_cent_is_told_and_the_newest_job_is_named() -> None:
    older, newest = [done(8, 0.01, 1.0)] * 3, replace(done(8, 0.01, 1.0), job_id="newest")
    (found,) = fewer_devices([*older, newest, *[done(2, 0.0075, 1.0)] * 3])
    assert (found.job_id, found.saving_micro_usd) == ("newest", 10_000)


@pytest.mark.parametrize(
    ("dollars", "hours", "want"),
    [
        (8.8, 1.0, "4 on 1 slot cost $8.80 and took 1.0 h"),
        (5.0, 0.99, "4 on 1 slot cost $5.00 and took 59.4 min"),
    ],
)
def test_four_fifths_of_the_cost_are_little_enough(dollars: float, hours: float, want: str) -> None:
    (found,) = fewer_devices([*ON_EIGHT, *[done(1, dollars, hours)] * 4])
    assert found.evidence.endswith(want)
    assert found.advice == "ask for 1 device, if it may take that long"
    assert found.saving_micro_usd == 33 * DOLLAR - round(3 * dollars * DOLLAR)


def test_of_equal_costs_the_fewest_slots_are_advised_from_a_cent_on() -> None:
    many = [done(8, 0.01, 1.0)] * 3
    found = list(fewer_devices([*many, *[done(num, 0.006, 1.0) for num in (4, 4, 4, 2, 2, 2)]]))
    assert [(it.advice.split(",")[0], it.saving_micro_usd) for it in found] == [
        ("ask for 2 devices", 12_000)
    ]


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([*ON_EIGHT[:2], *ON_TWO], id="too few on many slots"),
        pytest.param([*ON_EIGHT, *ON_TWO[:2]], id="too few on few slots"),
        pytest.param([*ON_EIGHT, *[done(2, 9, 2.0)] * 3], id="nearly the same cost"),
        pytest.param([*ON_EIGHT, *[done(2, 6, 2.0, "other")] * 3], id="another command"),
        *(
            pytest.param([*ON_EIGHT, *[done(2, 6, 2.0, kind=kind)] * 3], id=str(kind))
            for kind in (replace(GPU, device_type="cpu"), replace(GPU, is_spot=True))
        ),
        pytest.param(
            [*[done(2, 0.004333, 1.0)] * 3, *[done(1, 0.001, 1.0)] * 3], id="less than a cent"
        ),
    ],
)
def test_chance_is_no_evidence_for_fewer_slots(jobs: list[Done]) -> None:
    assert list(fewer_devices(jobs)) == []


PAID = OnDemand("job", "digits", "gpu", 8, 10 * 3_600_000_000, 40 * DOLLAR)
POOLS = [
    SpotPool("b", "gpu", 8, DOLLAR),
    SpotPool("c", "gpu", 16, DOLLAR),
    SpotPool("small", "gpu", 7, 1),
    SpotPool("a", "tpu", 8, 1),
]


def test_the_cheapest_pool_of_spot_nodes_is_told_with_what_it_would_lose() -> None:
    (found,) = spot_nodes(PAID, POOLS, [])
    assert (found.kind, found.saving_micro_usd) == ("spot_nodes", 40 * DOLLAR - 10_500_000)
    assert "in pool b, of spot nodes, they cost $10.50 with the 5.0 %" in found.evidence
    (found,) = spot_nodes(PAID, POOLS, [Lost("tpu", 10, 5), Lost("gpu", 10, 2)])
    assert found.saving_micro_usd == 40 * DOLLAR - 12 * DOLLAR
    (found,) = spot_nodes(PAID, POOLS, [Lost("gpu", 0, 0)])
    assert "5.0 %" in found.evidence


def test_spot_nodes_that_save_nothing_are_not_told() -> None:
    assert spot_nodes(PAID, POOLS[2:], []) == []
    assert spot_nodes(PAID, [SpotPool("b", "gpu", 8, 4 * DOLLAR)], []) == []
    assert spot_nodes(PAID, POOLS, [Lost("gpu", 10, 30), Lost("gpu", 10, 0)]) == []


@pytest.mark.parametrize(("paid", "saving"), [(10_509_999, None), (10_510_000, 10_000)])
def test_spot_nodes_are_told_from_a_cent_on(paid: int, saving: int | None) -> None:
    found = spot_nodes(replace(PAID, micro_usd=paid), POOLS, [])
    assert [it.saving_micro_usd for it in found] == ([] if saving is None else [saving])


def test_the_smallest_cost_on_spot_nodes_says_how_much_is_lost() -> None:
    (found,) = spot_nodes(PAID, POOLS, [Lost("gpu", 1, 1)])
    assert found.evidence == (
        "10.0 slot hours on demand cost $40.00; in pool b, of spot nodes, they cost $20.00 with "
        "the 100.0 % that is expected to be lost when nodes are taken away"
    )
