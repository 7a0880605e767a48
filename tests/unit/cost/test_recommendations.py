"""Recommendations name a saving and its evidence, and nothing where all is well."""

from dataclasses import replace

from services.cost.core.recommendations import (
    JobShares,
    LowUse,
    busier_devices,
    recommendations,
)

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
    assert recommendations(job(0, lost=10_000)) == []
    assert recommendations(job(0, lost=11_000)) != []


def test_little_use_of_devices_is_told_from_a_cent_on() -> None:
    low = LowUse("job", "digits", 12.0, 30.0, 75.0, 20 * DOLLAR, 12 * DOLLAR)
    (found,) = busier_devices(low)
    assert (found.kind, found.saving_micro_usd) == ("busier_devices", 12 * DOLLAR)
    assert "12.0 slot hours ($20.00)" in found.evidence
    assert busier_devices(replace(low, saving_micro_usd=9_999)) == []
