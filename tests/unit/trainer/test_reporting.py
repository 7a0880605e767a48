"""What a rank reports: bounded, counted when dropped, and never blocking training."""

import dataclasses
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from drivetrain import environment, reporting
from drivetrain.messages import StepProgress
from drivetrain.reporting import Key, Reporter
from drivetrain.samples import MAX_SAMPLES_PER_CHUNK, LastAndBest
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.reports import ALERT
from drivetrain_schemas.system_series import STEP_WORK


class Sink:
    """Keeps what is sent; acknowledges nothing before `is_open`."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.num_failures = 0
        self.has_failed = threading.Event()
        self.is_open = False
        self._sent: list[Key] = []

    def send(self, line: bytes) -> bool:
        if self.num_failures:
            self.num_failures -= 1
            self.has_failed.set()
            raise RuntimeError("whatever")
        message = json.loads(line)
        self.lines.append(message)
        if message["t"] == "samples":
            self._sent.append((message["run_id"], message["session"], message["batch"]))
        return True

    def acknowledged(self) -> list[Key]:
        sent, self._sent = self._sent, []
        return sent if self.is_open else []

    def close(self) -> None:
        return

    @property
    def steps(self) -> list[int]:
        columns = [line["columns"] for line in self.lines if line["t"] == "samples"]
        return [step for one in columns for column in one.values() for step in column["steps"]]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def make_reporter(sink: Sink) -> Callable[[], Reporter]:
    return lambda: Reporter(environment.read({}), sink, LastAndBest(), lambda: StepProgress(step=1))


class Odd:
    """Looks like a tensor at first sight."""

    def detach(self) -> None:
        return None


@pytest.mark.parametrize(
    "values",
    [{0: 0.5}, {"loss": 10**400}, {"loss": Odd()}, {"loss": [1]}, {None: None}],
    ids=["an invalid name", "a huge number", "no tensor", "a list", "None"],
)
def test_invalid_values_are_counted_and_later_ones_arrive(
    make_reporter: Callable[[], Reporter], sink: Sink, values: dict[Any, Any]
) -> None:
    reporter = make_reporter()
    reporter.start()
    reporter.log(1, values)
    reporter.settle()
    reporter.log(2, {"loss": 0.5})
    reporter.close(60)
    assert (reporter.num_refused, reporter.num_dropped) == (1, 0)
    assert sink.steps == [2]
    assert reporter.last_and_best.last == {"loss": (0.5, 2)}


def test_what_is_refused_is_told_once_by_name_with_the_fix(
    make_reporter: Callable[[], Reporter], caplog: pytest.LogCaptureFixture
) -> None:
    reporter = make_reporter()
    for step in range(3):
        reporter.log(step, {"accuracy": "high", "val\nloss": 0.5})
        reporter.settle()
    assert reporter.num_refused == 6
    assert [record.getMessage() for record in caplog.records] == [
        "a value of 'accuracy' is not a number: log a number, or a tensor or an array of one "
        "element; such values are left out",
        "'val\\nloss' is not the name of a metric: write a string of at most 128 printable "
        "characters, with no space at either end; such values are left out",
    ]


def test_the_thread_survives_a_failure(
    make_reporter: Callable[[], Reporter], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "_PROGRESS_SECONDS", 0.01)
    sink.num_failures = 1
    reporter = make_reporter()
    reporter.start()
    assert sink.has_failed.wait(60)
    reporter.log(1, {"loss": 0.5})
    reporter.close(60)
    assert sink.steps == [1]


def test_samples_that_do_not_fit_are_counted_and_the_result_is_exact(
    make_reporter: Callable[[], Reporter], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are not sent: the thread does not run before the end."""
    room = 2 * MAX_SAMPLES_PER_CHUNK
    monkeypatch.setattr(reporting, "MAX_WAITING_SAMPLES", room)
    monkeypatch.setattr(reporting, "MAX_LOGGED", 3 * room)
    reporter = make_reporter()
    num_logged = 5 * MAX_SAMPLES_PER_CHUNK + 7
    for step in range(num_logged):
        reporter.log(step, {"loss": float(-step)})
        assert len(reporter._logged) <= 3 * room
    reporter.settle()
    assert reporter.num_dropped == num_logged - room
    assert reporter.last_and_best.last == {"loss": (float(1 - num_logged), num_logged - 1)}
    reporter.start()
    reporter.close(60)
    assert sink.steps == list(range(room))


def test_samples_in_flight_and_in_a_checkpoint_are_bounded(
    make_reporter: Callable[[], Reporter], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 300_000
    monkeypatch.setattr(reporting, "MAX_UNACKNOWLEDGED_BYTES", limit)
    reporter = make_reporter()
    for step in range(20 * MAX_SAMPLES_PER_CHUNK):
        reporter.log(step, {"loss": math.pi})
    on_the_way = reporter.unacknowledged()
    sizes = [len(json.dumps(message)) for message in on_the_way]
    assert limit - max(sizes) < sum(sizes) < limit + 2 * max(sizes)
    assert reporter.unacknowledged() == on_the_way
    sink.is_open = True
    reporter.start()
    reporter.close(60)
    assert sink.steps == list(range(20 * MAX_SAMPLES_PER_CHUNK))
    assert reporter.num_dropped == 0


def test_batches_of_an_earlier_run_are_sent_again_as_they_were(
    make_reporter: Callable[[], Reporter], sink: Sink
) -> None:
    before = make_reporter()
    before.log(1, {"loss": 0.5})
    lost = before.unacknowledged()
    after = make_reporter()
    after.resend(lost)
    after.start()
    after.close(60)
    (sent,) = (line for line in sink.lines if line["t"] == "samples")
    assert sent == lost[0]


def test_a_warning_is_logged_and_sent_once(make_reporter, sink, caplog) -> None:
    reporter = make_reporter()
    reporter.start()
    for _ in range(3):
        reporter.warn("no_resume", "name the state to save")
    for number in range(2 * reporting.MAX_WARNINGS):
        reporter.log(number, {f"bad\n{number}": 1.0})
    reporter.close(5)
    sent = [line for line in sink.lines if line["t"] == "warned"]
    assert len(sent) == reporting.MAX_WARNINGS
    assert [line["warning"] for line in sent[:2]] == ["no_resume", "refused_samples"]
    assert caplog.text.count("name the state to save") == 1
    assert reporter.has_warned("no_resume")


def test_an_alert_is_logged_and_sent(make_reporter, sink, caplog) -> None:
    reporter = make_reporter()
    reporter.start()
    reporter.alert("data ran out")
    reporter.close(5)
    sent = [(one["warning"], one["detail"]) for one in sink.lines if one["t"] == "warned"]
    assert sent == [(ALERT, "data ran out")]
    assert "alert: data ran out" in caplog.text


@pytest.mark.parametrize("job", [JobSpec.model_construct(), None], ids=["in a pod", "local"])
def test_own_work_is_a_system_series_of_the_rank_in_a_pod(sink: Sink, job: JobSpec | None) -> None:
    place = dataclasses.replace(environment.read({}), rank=3, job=job)
    reporter = Reporter(place, sink, LastAndBest(), StepProgress, lambda: 0.25)
    reporter.start()
    reporter.close(60)
    sent = [(one["rank"], one["columns"]) for one in sink.lines if one["t"] == "samples"]
    assert [(rank, columns[STEP_WORK]["values"]) for rank, columns in sent] == (
        [(3, [0.25])] if job else []
    )
