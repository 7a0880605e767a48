"""Exports of jobs: what is read, in bounded parts; what is refused; no half file is left."""

import contextlib
import csv
import errno
import resource
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.cli import session
from drivetrain.cli.errors import InvalidInput, NoAnswer, Refused
from drivetrain.cli.exchange import facts, lineage, mlflow, tables
from drivetrain.cli.exchange import history as history_module
from drivetrain.cli.exchange.history import Clock, History, Sample
from drivetrain.cli.exchange.mlflow_names import key
from drivetrain.cli.exchange.mlflow_server import MlflowServer
from drivetrain.cli.exchange.writing import whole_directory, whole_file
from tests.exchange.stored_job import JOB_ID, StoredJob, make_job, make_view
from tests.unit.cli.conftest import RunCli

STEPS = st.dictionaries(
    st.integers(0, 60) | st.integers(0, 2**50), st.floats(allow_nan=False), max_size=40
)


def read(job: StoredJob) -> dict[tuple[int, str], dict[int, tuple[int, float]]]:
    found: dict[tuple[int, str], dict[int, tuple[int, float]]] = {}
    with job.gateway() as gateway:
        history = History(gateway, job.view)
        for one in history.samples(history.series()):
            columns = found.setdefault((one.rank, one.name), {})
            assert one.step not in columns, "each step once"
            assert not columns or one.step > max(columns), "in order"
            columns[one.step] = (one.attempt, one.value)
    return found


@given(
    samples=st.dictionaries(
        st.tuples(st.integers(1, 2), st.integers(0, 1), st.sampled_from(["a", "b, c", "d"])), STEPS
    )
)
def test_every_step_is_read_once_as_the_last_attempt_logged_it(
    samples: dict[tuple[int, int, str], dict[int, float]],
) -> None:
    """However few samples a request may answer."""
    view = make_view()
    view["spec"]["resources"]["devices"] = 2
    job = StoredJob(view=view, samples={name: one for name, one in samples.items() if one})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_module, "MAX_POINTS", 16)
        assert read(job) == job.expected()


def test_many_short_series_are_read_by_few_requests() -> None:
    samples = {(1, 0, f"layer {number}"): {0: 0.5, 9: 0.25} for number in range(2000)}
    job = StoredJob(samples=samples)
    assert read(job) == job.expected()
    assert job.num_requests < 130


def test_a_job_that_logs_more_meanwhile_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_POINTS", 16)
    job = StoredJob(samples={(1, 0, name): {0: 1.0, 99: 1.0} for name in "ab"})
    with job.gateway() as gateway:
        history = History(gateway, job.view)
        series = list(history.series())
        for columns in job.samples.values():
            columns.update(dict.fromkeys(range(100), 0.5))
        found = [(one.name, one.step) for one in history.samples(series)]
    assert found == [(name, step) for name in "ab" for step in range(100)]


def test_samples_that_cannot_be_read_are_an_error_never_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StoredJob(samples={(1, 0, "loss"): {0: 1.0, 1: 1.0}})
    monkeypatch.setattr("tests.exchange.stored_job.MAX_READ", 0)
    monkeypatch.setattr(
        StoredJob, "_metrics", lambda *_: {"loss": _unread(values=[], steps=[], read_from_step=9)}
    )
    with pytest.raises(NoAnswer, match="step 0 of 'loss' cannot be read whole"):
        read(job)


def _unread(**more: Any) -> dict[str, Any]:
    return {"is_downsampled": False, **more}


def test_times_of_steps_are_spread_between_those_that_are_known() -> None:
    clock = Clock([10, 20, 40], [100.0, 110.0, 210.0])
    assert [clock.at(step) for step in (0, 10, 15, 20, 30, 40, 50)] == [
        *(100.0, 100.0, 105.0, 110.0, 160.0, 210.0, 210.0)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "not said where"),
        (("--csv", "x.csv", "--study", "s"), "give one of them"),
        (("--mlflow", "sqlite:///x.db"), "is not the address of an MLflow server"),
        (("--mlflow", "http://"), "is not the address of an MLflow server"),
        (("--csv", "."), "is a directory"),
        (("--csv", "there"), "there exists"),
        (("--parquet", "there"), "there exists"),
        (("--openlineage", "there"), "there exists"),
        (("--tensorboard", "."), f"digits-{JOB_ID[:12]} exists"),
        (("--tensorboard", "there"), "cannot be written"),
        (("--csv", "there/x.csv"), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch,
    cli: RunCli,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(session, "connect", make_job().gateway)
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("mine")
    Path(f"digits-{JOB_ID[:12]}").mkdir()
    ran = cli("job", "export", JOB_ID, *arguments)
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert "fix:" in ran.err
    assert Path("there").read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"digits-{JOB_ID[:12]}", "there"]


def test_a_job_that_never_ran_has_files_without_samples(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path
) -> None:
    view = make_view(state="rejected", name=None, spec=None, result=None, runs=[], attempt=None)
    job = StoredJob(view={**view, "started_at": None, "finished_at": None})
    monkeypatch.setattr(session, "connect", job.gateway)
    monkeypatch.chdir(tmp_path)
    to = ("--csv", "x.csv", "--parquet", "x.parquet", "--tensorboard", "logs")
    ran = cli("job", "export", JOB_ID, *to, "--openlineage", "x.jsonl")
    assert ran.code == 0, ran.err
    assert Path("x.csv").read_text().splitlines() == [",".join(tables.COLUMNS)]
    assert [one.name for one in Path("logs").iterdir()] == [f"job-{JOB_ID[:12]}"]


def test_a_run_that_is_deleted_meanwhile_is_an_error() -> None:
    """MLflow answers that there is no such run."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.rpartition("mlflow/")[2]
        if path == "experiments/get-by-name":
            return httpx.Response(200, json={"experiment": {"experiment_id": "1"}})
        if path == "runs/search":
            info = {"run_id": "r", "artifact_uri": "mlflow-artifacts:/1/r/artifacts"}
            return httpx.Response(200, json={"runs": [{"info": info}]})
        return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "?"})

    job = make_job()
    server = MlflowServer("http://x.test", {}, httpx.MockTransport(answer))
    deleted = pytest.raises(NoAnswer, match="was deleted in MLflow meanwhile")
    with contextlib.closing(server), job.gateway() as gateway, deleted:
        mlflow.export_job(server, gateway, job.view, "x")


def test_an_unknown_job_is_not_found(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "connect", make_job().gateway)
    target = tmp_path / "x.csv"
    ran = cli("job", "export", "job_" + "c" * 26, "--csv", str(target))
    assert ran.code == 4
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_what_is_there(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "connect", make_job().gateway)
    target = tmp_path / "x.csv"
    target.write_text("old")
    old = tmp_path / f"digits-{JOB_ID[:12]}" / "events.out.tfevents.1.old"
    old.parent.mkdir()
    old.write_text("old")
    to = ("--csv", str(target), "--tensorboard", str(tmp_path), "--overwrite")
    assert cli("job", "export", JOB_ID, *to).code == 0
    assert target.read_text().splitlines()[0] == ",".join(tables.COLUMNS)
    assert not old.exists()
    assert len(list(old.parent.iterdir())) == 1


@pytest.mark.parametrize("whole", [whole_file, whole_directory])
def test_a_full_disk_leaves_what_was_there_and_no_half(whole: Any, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with whole(target, False) as partial:
        (partial if whole is whole_file else partial / "file").write_text("old")

    def fill() -> None:
        with whole(target, True) as partial:
            (partial if whole is whole_file else partial / "file").write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InvalidInput, match="No space left on device"):
        fill()
    assert list(tmp_path.iterdir()) == [target]
    kept = target if whole is whole_file else target / "file"
    assert kept.read_text() == "old"


@pytest.mark.parametrize("kind", ["csv", "parquet", "tensorboard", "openlineage"])
def test_a_write_that_fails_is_said_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path, kind: str
) -> None:
    """A limit on the size of files stands for the full disk: the write fails after some bytes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # modules would be cut off as well
    monkeypatch.setattr(session, "connect", make_job().gateway)
    target = tmp_path / "target"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        ran = cli("job", "export", JOB_ID, f"--{kind}", str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ran.code == 2, ran.err
    assert "cannot be written: " in ran.err
    assert "File too large" in ran.err
    assert [one for one in tmp_path.rglob("*") if one != target or kind != "tensorboard"] == []


def test_names_that_mlflow_refuses_are_changed_and_stay_apart() -> None:
    names = ["loss", "val loss", "a/b.c:d", "a@b", "a#b", "a//b", "a/b", "/a/b", "..", ".", "../a"]
    keys = [key(name) for name in names]
    assert keys[:3] == names[:3]
    assert len(set(keys)) == len(names)
    assert len({key("loss", rank) for rank in range(3)}) == 3


def test_a_server_that_is_no_mlflow_is_told_from_one() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(Refused, match="does not come from MLflow"):
        MlflowServer("http://x.test", {}, transport).get("/experiments/get-by-name", {})


def test_what_an_mlflow_says_that_refuses_or_fails_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def asking(answer: httpx.Response) -> MlflowServer:
        return MlflowServer("http://x.test", {}, httpx.MockTransport(lambda _: answer))

    with pytest.raises(Refused, match=r"\(403\): Permission denied"):
        asking(httpx.Response(403, text="Permission denied")).get("/runs/get", {})
    failing = asking(httpx.Response(500, json={"message": "no such table: runs"}))
    failing._client._sleep = lambda _: None
    with pytest.raises(NoAnswer, match=r"x\.test answered 500: .*no such table: runs"):
        failing.get("/runs/get", {})
    assert "MLflow answered 500" in capsys.readouterr().err


def test_whatever_the_message_of_a_server_is_it_is_told() -> None:
    answer = httpx.Response(400, json={"error_code": "X", "message": {"no": "text"}})
    server = MlflowServer("http://x.test", {}, httpx.MockTransport(lambda _: answer))
    with pytest.raises(Refused, match=r"no.*text"):
        server.get("/experiments/get-by-name", {})


def test_the_name_of_a_series_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    target = tmp_path / "samples.csv"
    one = Sample(0, "=HYPERLINK(A1)", 1, 0, 0.0, -1.5)
    tables.write_csv(target, [(JOB_ID, one)])
    [_, row] = csv.reader(target.read_text().splitlines())
    assert row[3] == "'=HYPERLINK(A1)"
    assert row[6] == "-1.5"


@pytest.mark.parametrize("write", [tables.write_csv, tables.write_parquet])
def test_a_time_that_is_no_date_fails_no_export(write: Any, tmp_path: Path) -> None:
    one = Sample(0, "system/cpu_percent", 1, 0, 2.0**53, 1.0)
    assert write(tmp_path / "samples", [(JOB_ID, one)]) == 1


def test_other_systems_get_no_passwords() -> None:
    view = make_view()
    view["spec"]["data"] = "s3://user:hidden@sets/digits?X-Amz-Signature=hidden"
    view["spec"]["environment"] = {"TOKEN": "hidden"}
    assert facts.tags(view)["data"] == "s3://sets/digits"
    assert facts.spec_of(view)["environment"] == {"TOKEN": "***"}
    assert "hidden" not in repr(facts.spec_of(view))
    events = list(lineage.events_of(view, None, []))
    assert events
    assert "hidden" not in repr(events)
    assert "'namespace': 's3://sets', 'name': 'digits'" in repr(events)
