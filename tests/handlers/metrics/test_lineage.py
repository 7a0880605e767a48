"""OpenLineage events of runs, sent to a real HTTP server that dies, refuses and comes back."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointRestored,
)
from drivetrain_schemas.descriptions import RunDescribed, Surroundings
from drivetrain_schemas.ids import allocation_id_for, checkpoint_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobSucceeded, TrialOf
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunLost,
    RunStarted,
    RunStarting,
    RunSucceeded,
)
from services.metrics.core.lineage import MAX_TRIES_OF_REFUSED, Endpoint
from services.metrics.lineage import sending, store
from services.metrics.lineage.sending import Sender
from services.metrics.lineage.writing import handlers
from services.runtime.database import Database
from tests import openlineage
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.handlers.metrics.builders import JOB

LOOPBACK = [ip_network("127.0.0.0/8")]
NOW = datetime.now(UTC)
ANYWHERE = Endpoint("marquez", "http://127.0.0.1:1")
SPEC: dict[str, Any] = {
    "name": "digits-3",
    "command": ["python", "train.py"],
    "data": "s3://user:hidden@sets/digits/v3?X-Amz-Signature=hidden",
    "code": {"uri": "s3://code/x.tar.gz", "sha256": "c" * 64},
    "source": {"commit": "d" * 40, "branch": "main"},
}
STUDY = "study_" + "b3" * 13
# Says 200 to all, and writes down what it got, so that it may be killed at any time.
SERVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "a") as file:
            file.write(json.dumps([self.path, self.headers["Authorization"], json.loads(body)]))
            file.write("\\n")
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


def run_fields(attempt: int = 1) -> dict[str, Any]:
    return {"job_id": JOB, "run_id": run_id_for(JOB, attempt), "attempt": attempt, "fence": 1}


def saved(step: int, attempt: int = 1) -> dict[str, Any]:
    ours = run_fields(attempt)
    checkpoint_id = checkpoint_id_for(f"{ours['run_id']}/{step}")
    return {**ours, "tenant_id": "default", "step": step, "checkpoint_id": checkpoint_id}


def committed(step: int, attempt: int = 1) -> CheckpointCommitted:
    facts = {"size_bytes": 1000, "num_shards": 2, "epoch": 0, "metrics": {}}
    return CheckpointCommitted(
        **saved(step, attempt), **facts, manifest_key="m", is_latest=True, is_best=False
    )


def queued(**fields: Any) -> JobQueued:
    spec = JobSpec.model_validate(SPEC)
    return JobQueued(job_id=JOB, request_id="r", spec=spec, queued_at=NOW, **fields)


def starting(attempt: int = 1) -> RunStarting:
    allocation_id = allocation_id_for(JOB, attempt)
    return RunStarting(**run_fields(attempt), allocation_id=allocation_id, num_pods=1)


async def happen(metrics: Database, *payloads: Payload, endpoint: Endpoint = ANYWHERE) -> None:
    for payload in payloads:
        event = replace(make_event(payload), occurred_at=NOW)
        await handle(metrics, handlers([endpoint], {}), event)


async def written(metrics: Database) -> list[Any]:
    async with metrics.connection() as connection:
        rows = await connection.fetch("select body from deliveries order by id")
    return [json.loads(row["body"]) for row in rows]


def described(number: int, data: list[dict[str, str]]) -> RunDescribed:
    names = dict.fromkeys(("python", "platform", "entry_point"), "x")
    said = Surroundings.model_validate({**names, "data": data})
    ours = {**run_fields(), "tenant_id": "default"}
    ours.pop("fence")
    return RunDescribed(**ours, number=number, surroundings=said)


def versions(event: Any) -> list[tuple[str, str, str | None]]:
    return [
        (
            one["namespace"],
            one["name"],
            one["facets"].get("version", {}).get("datasetVersion"),
        )
        for one in event["inputs"]
    ]


async def due_now(metrics: Database) -> None:
    async with metrics.connection() as connection:
        await connection.execute("update deliveries set not_before = clock_timestamp()")


def kinds(events: list[Any]) -> list[str]:
    return [event["eventType"] for event in events]


def names(event: Any, side: str) -> list[str]:
    return [one["name"].rpartition("/")[2] for one in event[side]]


async def test_runs_are_told_as_openlineage_s_own_schemas_want_it(metrics: Database) -> None:
    first, second = committed(100), committed(200, 2)
    restored = CheckpointRestored(
        **saved(100),
        resumed_by_run_id=run_id_for(JOB, 2),
        resumed_by_attempt=2,
        load_seconds=0.5,
    )
    gone = CheckpointDeleted(**saved(50), size_bytes=1000, reason="old")
    await happen(
        metrics,
        queued(),
        starting(),
        RunStarted(**run_fields(), started_at=NOW),
        committed(50),
        first,
        gone,
        RunLost(**run_fields(), detail="the node is gone", ended_at=NOW),
        starting(2),
        RunStarted(**run_fields(2), started_at=NOW),
        restored,
        RunSucceeded(**run_fields(2), ended_at=NOW),
        second,  # verified after the end
    )
    events = await written(metrics)
    assert [problem for event in events for problem in openlineage.problems(event)] == []
    assert kinds(events) == ["START", "FAIL", "START", "RUNNING", "COMPLETE", "OTHER"]
    ids = [first.checkpoint_id, second.checkpoint_id]
    assert [names(event, "outputs") for event in events] == [[], ids[:1], [], [], [], ids[1:]]
    assert [names(event, "inputs") for event in events[:4]] == [["v3"]] * 3 + [["v3", ids[0]]]
    assert events[1]["run"]["facets"]["errorMessage"]["message"] == "the node is gone"
    assert len({event["run"]["runId"] for event in events}) == 2
    assert {event["job"]["name"] for event in events} == {"digits-3"}
    assert "hidden" not in repr(events)


async def test_data_that_a_run_says_it_uses_is_an_input_from_then_on(metrics: Database) -> None:
    """Before its START, while it runs, and of the job's own data with its version."""
    file = {"uri": "data/digits.csv", "checksum": "sha256:" + "a" * 64}
    remote = {"uri": "s3://me:hidden@sets/digits/v3", "version": "2026-01", "checksum": "size:7"}
    await happen(
        metrics,
        queued(),
        described(1, []),
        described(2, [file]),
        starting(),
        RunStarted(**run_fields(), started_at=NOW),
        described(3, [file, remote]),
        RunSucceeded(**run_fields(), ended_at=NOW),
        described(4, [remote]),
    )
    events = await written(metrics)
    assert [problem for event in events for problem in openlineage.problems(event)] == []
    assert kinds(events) == ["START", "RUNNING", "COMPLETE", "OTHER"]
    first = ("s3://sets", "digits/v3", None), ("file", "data/digits.csv", file["checksum"])
    then = ("s3://sets", "digits/v3", "2026-01, size:7"), first[1]
    assert [versions(event) for event in events] == [[*first], [*then], [*then], [then[0]]]
    assert "hidden" not in repr(events)


async def test_a_job_whose_data_urllib_cannot_read_is_told(metrics: Database) -> None:
    job = queued()
    spec = job.spec.model_copy(update={"data": "s3://[sets/v3"})
    started = RunStarted(**run_fields(), started_at=NOW)
    await happen(metrics, job.model_copy(update={"spec": spec}), starting(), started)
    [event] = await written(metrics)
    assert (kinds([event]), names(event, "inputs")) == (["START"], ["v3"])
    assert openlineage.problems(event) == []


async def test_they_are_those_that_the_command_line_exports(metrics: Database) -> None:
    from drivetrain.cli.exchange import lineage

    await happen(
        metrics,
        queued(trial=TrialOf(study_id=STUDY, number=3)),
        starting(),
        RunStarted(**run_fields(), started_at=NOW),
        committed(100),
        RunSucceeded(**run_fields(), ended_at=NOW),
    )
    run = {
        "run_id": run_id_for(JOB, 1), "attempt": 1, "state": "succeeded", "detail": None,
        "exit_code": 0, "started_at": NOW.isoformat(), "starting_at": NOW.isoformat(),
        "ended_at": NOW.isoformat(),
    }  # fmt: skip
    view = {
        "job_id": JOB, "tenant_id": "default", "name": "digits-3", "spec": SPEC, "runs": [run]
    }  # fmt: skip
    checkpoint = {
        "checkpoint_id": committed(100).checkpoint_id, "run_id": run["run_id"], "step": 100,
        "size_bytes": 1000, "num_shards": 2, "state": "committed", "restored_by_attempt": None,
    }  # fmt: skip
    study = {"study_id": STUDY, "name": "digits"}
    assert await written(metrics) == list(lineage.events_of(view, study, [checkpoint]))


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (RunFailed(**run_fields(), exit_code=3, last_log="", ended_at=NOW), "FAIL"),
        (RunCancelled(**run_fields(), ended_at=NOW), "ABORT"),
    ],
)
async def test_a_run_that_ends_before_it_began_has_a_begin(
    metrics: Database, end: Payload, kind: str
) -> None:
    """OpenLineage demands one START and one end of each run. Each event counts once."""
    await happen(metrics, queued(), starting())
    event = replace(make_event(end), occurred_at=NOW)
    for _ in range(2):
        await handle(metrics, handlers([ANYWHERE], {}), event)
    assert kinds(await written(metrics)) == ["START", kind]


async def test_a_long_run_is_told_of_now_and_then(metrics: Database) -> None:
    await happen(metrics, queued(), starting(), RunStarted(**run_fields(), started_at=NOW))
    await happen(metrics, *(committed(step) for step in range(1, 4)))
    assert kinds(await written(metrics)) == ["START"]
    async with metrics.connection() as connection:
        await connection.execute("update lineage_runs set told_at = told_at - interval '1 hour'")
    await happen(metrics, *(committed(step) for step in range(4, 150)))
    events = await written(metrics)
    assert kinds(events) == ["START", "RUNNING"]
    assert len(names(events[1], "outputs")) == 4
    await happen(metrics, RunSucceeded(**run_fields(), ended_at=NOW))
    assert len(names((await written(metrics))[2], "outputs")) == 100, "the newest ones"


async def test_without_an_endpoint_nothing_is_kept_and_history_is_not_told(
    metrics: Database,
) -> None:
    whole = (queued(), starting(), RunStarted(**run_fields(), started_at=NOW), committed(1))
    for endpoints, age in (([], 0), ([replace(ANYWHERE, tenants=frozenset({"other"}))], 0)):
        for payload in whole:
            event = replace(make_event(payload), occurred_at=NOW - timedelta(days=age))
            await handle(metrics, handlers(endpoints, {}), event)
    async with metrics.connection() as connection:
        for table in ("lineage_jobs", "lineage_runs", "lineage_checkpoints", "deliveries"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0, table
    for payload in whole:
        old = replace(make_event(payload), occurred_at=NOW - timedelta(days=8))
        await handle(metrics, handlers([ANYWHERE], {}), old)
    assert await written(metrics) == []


async def test_what_others_do_with_the_same_event_is_done_first(metrics: Database) -> None:
    seen: list[str] = []

    async def other(tx: Any, event: Any) -> None:
        seen.append(event.type)

    table = handlers([ANYWHERE], {JobQueued: other, JobSucceeded: other})
    await handle(metrics, table, replace(make_event(queued()), occurred_at=NOW))
    assert seen == ["job.queued"]
    async with metrics.connection() as connection:
        assert await connection.fetchval("select count(*) from lineage_jobs") == 1


@contextmanager
def serving(port: int, log: Path) -> Iterator[int]:
    """A server in a process of its own, killed at the end of the block. Yields its port."""
    command = [sys.executable, "-c", SERVER, str(port), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def test_a_service_that_was_killed_gets_everything_once_and_in_order(
    metrics: Database, tmp_path: Path
) -> None:
    log = tmp_path / "received"
    runs = [(starting(n), RunStarted(**run_fields(n), started_at=NOW)) for n in range(1, 4)]
    ends = [RunSucceeded(**run_fields(n), ended_at=NOW) for n in range(1, 4)]
    await happen(metrics, queued(), *runs[0])
    with serving(0, log) as port:
        url = f"http://127.0.0.1:{port}"
        sender = Sender(Endpoint("marquez", url, key="secret"), LOOPBACK, metrics)
        assert await sender.send_all() == 1
    for payload in (ends[0], *runs[1], ends[1], *runs[2], ends[2]):
        await happen(metrics, payload)
        await due_now(metrics)
        assert await sender.send_all() == 0, "away"
    await due_now(metrics)
    with serving(port, log):
        async with metrics.connection() as connection:
            # The sender died in the middle: its try is over once another one may begin.
            begun = await store.begin(connection, "lineage:marquez", 0.0)
            assert begun is not None
        assert await sender.send_all() == 5
    received = [json.loads(line) for line in log.read_text().splitlines()]
    assert {tuple(one[:2]) for one in received} == {("/api/v1/lineage", "Bearer secret")}
    events = [one[2] for one in received]
    assert kinds(events) == ["START", "COMPLETE"] * 3
    assert len({(one["run"]["runId"], one["eventType"]) for one in events}) == 6
    assert await written(metrics) == []


@asynccontextmanager
async def answering(*statuses: int) -> AsyncIterator[tuple[str, list[str]]]:
    """Gives the answers in turn, the last one for ever. Yields its address, and what it got."""
    left, got = list(statuses), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        got.append(json.loads(await reader.readexactly(length))["eventType"])
        status = left.pop(0) if len(left) > 1 else left[0]
        head = f"HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mine", got
    finally:
        server.close()


async def begun_and_ended(metrics: Database) -> None:
    started = RunStarted(**run_fields(), started_at=NOW)
    await happen(metrics, queued(), started, RunSucceeded(**run_fields(), ended_at=NOW))


async def test_an_event_that_is_refused_holds_up_the_others_for_a_few_tries_only(
    metrics: Database,
) -> None:
    await begun_and_ended(metrics)
    async with answering(*[422] * MAX_TRIES_OF_REFUSED, 200) as (url, got):
        sender = Sender(replace(ANYWHERE, url=url), LOOPBACK, metrics)
        for _ in range(MAX_TRIES_OF_REFUSED):
            assert got.count("COMPLETE") == 0
            await sender.send_all()
            await due_now(metrics)
    assert got == ["START"] * MAX_TRIES_OF_REFUSED + ["COMPLETE"]
    assert await written(metrics) == []


@pytest.mark.parametrize("status", [302, 401, 404, 500, 503])
async def test_a_service_that_is_not_well_loses_nothing(metrics: Database, status: int) -> None:
    await begun_and_ended(metrics)
    async with answering(status) as (url, got):
        sender = Sender(replace(ANYWHERE, url=url), LOOPBACK, metrics)
        for _ in range(30):
            await due_now(metrics)
            assert await sender.send_all() == 0
    assert got == ["START"] * 30, "a redirect is not followed, COMPLETE does not overtake"
    assert kinds(await written(metrics)) == ["START", "COMPLETE"]


async def test_a_private_address_is_not_called_and_too_many_are_dropped(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun_and_ended(metrics)
    async with answering(200) as (url, got):
        sender = Sender(replace(ANYWHERE, url=url), [], metrics)
        assert await sender.send_all() == 0
    assert got == []
    monkeypatch.setattr(sending, "MAX_WAITING", 1)
    await sender.trim()
    assert kinds(await written(metrics)) == ["COMPLETE"], "the oldest go"
