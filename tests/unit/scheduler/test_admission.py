"""What cannot ever run is refused at once, naming the fix."""

from dataclasses import replace

import pytest

from drivetrain_schemas.jobs import FieldError, RejectionReason
from services.scheduler.core.admission import MAX_SPEC_BYTES, Offer, Request, refuse

OFFER = Offer({"default": {"cpu": 4, "gpu": 1}})


def make_request(devices: int = 1, **changes) -> Request:
    facts = {"pool": "default", "device_type": None, "has_image": False, "num_spec_bytes": 100}
    return Request(devices=devices, **{**facts, **changes})


CASES = {
    "all of the pool": (make_request(4), None),
    "more than the pool": (
        make_request(5),
        (RejectionReason.MORE_DEVICES_THAN_POOL, "ask for at most 4"),
    ),
    "more than there are of the type": (
        make_request(2, device_type="gpu"),
        (RejectionReason.MORE_DEVICES_THAN_POOL, "ask for at most 1"),
    ),
    "a type that the pool lacks": (
        make_request(1, device_type="tpu"),
        (RejectionReason.MORE_DEVICES_THAN_POOL, "leave device_type out"),
    ),
    "an unknown pool": (
        make_request(pool="other"),
        (RejectionReason.NO_SUCH_POOL, "name one of: default"),
    ),
    "what the contract alone allows": (
        make_request(problem=FieldError(field="command", message="is wrong", fix="write it")),
        (RejectionReason.INVALID_SPEC, "write it"),
    ),
    "an image": (
        make_request(has_image=True),
        (RejectionReason.UNSUPPORTED, "give code instead of image"),
    ),
    "a spec that no environment variable holds": (
        make_request(num_spec_bytes=MAX_SPEC_BYTES + 1),
        (RejectionReason.TOO_LARGE, "put large values into files of the job's code"),
    ),
    "the largest spec": (make_request(num_spec_bytes=MAX_SPEC_BYTES), None),
}


@pytest.mark.parametrize(("request_", "want"), CASES.values(), ids=CASES.keys())
def test_refuse(request_, want):
    refusal = refuse(request_, OFFER)

    assert (refusal and (refusal.reason, refusal.fix)) == want


@pytest.mark.parametrize(
    ("device_type", "want"),
    [
        ("gpu", "pool default has 1 gpu devices, the job asks for 9"),
        (None, "pool default has 4 devices of one type, the job asks for 9"),
    ],
)
def test_the_refusal_says_what_the_pool_has(device_type, want):
    refusal = refuse(make_request(9, device_type=device_type), OFFER)

    assert refusal is not None
    assert refusal.detail == want


def test_of_many_pools_twenty_are_named_and_without_one_a_node_is_missing():
    pools = {f"p{number:02}": {"cpu": 1} for number in reversed(range(21))}
    many = refuse(make_request(pool="other"), Offer(pools))
    assert many is not None
    assert many.fix == f"name one of: {', '.join(sorted(pools)[:20])}"

    none = refuse(make_request(), Offer({}))
    assert none is not None
    assert none.fix == "add a node first"


def test_a_launcher_that_runs_images_takes_them():
    assert refuse(make_request(has_image=True), replace(OFFER, can_run_images=True)) is None
