"""The directory of unsent telemetry is shared by all pods of a machine, and by their programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.pod.events import OutRecord
from drivetrain.pod.telemetry import Telemetry
from drivetrain.pod.unsent import Unsent
from drivetrain_schemas.envelope import MAX_EVENT_BYTES
from drivetrain_schemas.pods import KafkaAccess

ACCESS = KafkaAccess(bootstrap_servers="127.0.0.1:1", topic_prefix="drivetrain.")
RECORD = OutRecord("drivetrain.logs", b"run", b"line", [])


def unsent_of(tmp_path: Path, pod_id: str = "pod_a") -> Unsent:
    return Unsent(tmp_path / "job" / "1" / pod_id, ACCESS)


def test_records_are_kept_while_another_shim_removes_what_it_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def and_one_that_was_just_sent(directory: Path) -> Iterator[Path]:
        yield directory / "1-pod_b"
        yield from listed(directory)

    monkeypatch.setattr(Path, "iterdir", and_one_that_was_just_sent)
    assert unsent_of(tmp_path).keep([RECORD])


async def test_a_directory_of_a_program_does_not_hinder_what_pods_left(tmp_path: Path) -> None:
    (tmp_path / "unsent" / "0-pod_b").mkdir(parents=True)
    await unsent_of(tmp_path).send()
    assert (tmp_path / "unsent" / "0-pod_b").is_dir()


async def test_a_file_in_the_place_of_the_directory_does_not_hinder_the_end(tmp_path: Path) -> None:
    (tmp_path / "unsent").write_bytes(b"")
    assert not unsent_of(tmp_path).keep([RECORD])
    await unsent_of(tmp_path).send()


def test_what_kafka_would_always_refuse_is_not_queued() -> None:
    large = bytes(MAX_EVENT_BYTES + 1)
    telemetry = Telemetry(ACCESS)
    assert telemetry.put(RECORD)
    assert not telemetry.put(OutRecord(RECORD.topic, large, b"line", []))
    assert not telemetry.put(OutRecord(RECORD.topic, b"run", b"line", [("h", large)]))
