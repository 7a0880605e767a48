"""A shim in a container: where its notice comes from, and how its end leaves."""

import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivetrain.pod import container
from drivetrain.pod.container import Container, exit_code, make_directory, wait_for_name
from drivetrain.pod.shim import leave_container
from drivetrain.storage import create_storage
from drivetrain_schemas.pod_ends import ReportedEnd, exit_key
from drivetrain_schemas.pods import PodExit, PodSpec, StopNotice
from tests.unit.trainer.test_ranks import pod_spec

NOTICE = StopNotice(reason="preempt", deadline_seconds=12.0)


@pytest.fixture
def place(tmp_path: Path) -> Container:
    (tmp_path / "notice").touch()
    return Container(tmp_path / "notice", 30.0, tmp_path / "termination-log")


def stored_spec(store: Path) -> PodSpec:
    return pod_spec(object_store_url=store.as_uri())


def an_end(spec: PodSpec, **changes) -> PodExit:
    given = {"outcome": "succeeded", "ranks": (), "ended_at": datetime.now(UTC)}
    return PodExit(pod_id=spec.pod_id, **{**given, **changes})


def test_an_empty_annotation_is_no_notice(place: Container, tmp_path: Path) -> None:
    notices = place.notices(tmp_path)
    assert not notices.is_given()
    place.notice.write_text(NOTICE.model_dump_json())
    assert notices.is_given()
    assert notices.read() == NOTICE


@pytest.mark.parametrize("content", ["", "no JSON", '{"reason": "other"}'])
def test_a_signal_without_a_notice_stops_within_the_grace_period(
    place: Container, tmp_path: Path, content: str
) -> None:
    place.notice.write_text(content)
    assert place.notices(tmp_path).read() == StopNotice(reason="shutdown", deadline_seconds=30.0)


def test_an_annotation_is_read_through_the_links_of_the_kubelet(
    place: Container, tmp_path: Path
) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "stop").write_text(NOTICE.model_dump_json())
    (tmp_path / "stop").symlink_to("..data/stop")
    linked = Container(tmp_path / "stop", 30.0)
    assert linked.notices(tmp_path).read() == NOTICE


def test_an_end_is_published_bounded_and_whole(place: Container, tmp_path: Path) -> None:
    spec = stored_spec(tmp_path / "store")
    storage = create_storage(tmp_path / "store")
    end = an_end(spec, last_log="x" * 8000)
    place.publish(spec, end)
    message = place.termination_log.read_bytes()
    assert len(message) <= 4096
    reported = ReportedEnd.model_validate_json(message)
    assert (reported.end.outcome, reported.is_whole) == ("succeeded", False)
    content = storage.get(exit_key(spec.job_id, spec.attempt, spec.pod_id))
    assert PodExit.model_validate_json(content or b"") == end


def test_without_the_store_the_message_suffices(
    place: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "STORE_SECONDS", 0.05)
    spec = stored_spec(tmp_path / "away")
    end = an_end(spec, outcome="failed", detail="it failed")
    place.publish(spec, end)
    assert ReportedEnd.model_validate_json(place.termination_log.read_bytes()).end == end
    assert not (tmp_path / "away").exists()


def test_without_the_message_the_store_suffices(tmp_path: Path) -> None:
    spec = stored_spec(tmp_path / "store")
    storage = create_storage(tmp_path / "store")
    Container(tmp_path / "notice", 30.0, tmp_path / "none" / "log").publish(spec, an_end(spec))
    assert storage.get(exit_key(spec.job_id, spec.attempt, spec.pod_id)) is not None


def test_an_end_leaves_whatever_is_wrong_with_the_disk(place: Container, tmp_path: Path) -> None:
    spec = stored_spec(tmp_path / "store")
    create_storage(tmp_path / "store")
    end = an_end(spec)
    leave_container(place, tmp_path / "is not there", spec, end)
    assert ReportedEnd.model_validate_json(place.termination_log.read_bytes()).end == end


def test_the_directory_is_the_same_for_the_init_step_and_the_shim(tmp_path: Path) -> None:
    spec = pod_spec()
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    made = make_directory(tmp_path / "root", tmp_path / "spec.json")
    assert PodSpec.model_validate_json((made / "spec.json").read_bytes()) == spec
    assert make_directory(tmp_path / "root", tmp_path / "spec.json") == made
    assert made == tmp_path / "root" / spec.job_id / str(spec.attempt) / spec.pod_id


def test_ranks_start_once_the_first_pod_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(host: str, port: int) -> list[object]:
        asked.append((host, port))
        if len(asked) < 3:
            raise socket.gaierror("not known yet")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    spec = pod_spec(rendezvous_address="pod-0.run-a-1", rendezvous_file=None)
    assert wait_for_name(spec, lambda: False) == ""
    assert asked == [("pod-0.run-a-1", spec.master_port)] * 3
    assert wait_for_name(pod_spec(rendezvous_address=None), lambda: False) == ""
    assert len(asked) == 3


def test_a_name_that_nobody_knows_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str, port: int) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(container, "NAME_SECONDS", -1.0)
    spec = pod_spec(rendezvous_address="pod-0.run-a-1")
    assert "pod-0.run-a-1 is not known" in wait_for_name(spec, lambda: False)
    assert wait_for_name(spec, lambda: True) == ""  # it is to stop


def test_the_exit_code_tells_an_interruption_from_a_failure() -> None:
    spec = pod_spec()
    codes = [exit_code(an_end(spec, outcome=o)) for o in ("succeeded", "failed", "interrupted")]
    assert codes == [0, 1, 75]
