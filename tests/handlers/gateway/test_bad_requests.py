"""Whatever is sent, the answer is a problem with the field and the fix; nothing is sent on."""

import asyncio
import gzip
import io
import tarfile
from typing import Any

import pytest

from drivetrain_schemas.object_store import StoreFailure
from services.gateway.context import MAX_UPLOADS_IN_MEMORY
from services.gateway.rest import code as uploads
from services.gateway.rest.positions import position_text
from services.runtime.errors import StoreError
from tests.bad_studies import BAD_STUDIES, RATE
from tests.handlers.gateway.model import Server
from tests.handlers.gateway.story import START, Story, spec

SPEC = spec("asked").model_dump(mode="json", exclude_none=True)
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        pytest.param(b"{not json", 400, "JSON", id="not JSON"),
        pytest.param(b'{"spec": {"name": "a", "name": "b"}}', 400, "twice", id="duplicate keys"),
        pytest.param(b'{"spec": NaN}', 400, "NaN", id="NaN"),
        pytest.param(b'{"spec": 1e999}', 400, "too large", id="infinity by exponent"),
        pytest.param(b'{"spec": ' + b"9" * 5000 + b"}", 400, "digits", id="endless digits"),
        pytest.param(b'{"a":' * 100 + b"1" + b"}" * 100, 400, "nested", id="deep nesting"),
        pytest.param(b"[" * 200_000, 400, "nested", id="very deep nesting"),
        pytest.param(b'{"spec": "\xff"}', 400, "JSON", id="not UTF-8"),
        pytest.param(b'{"spec": {"name": "a\\u0000"}}', 400, "NUL", id="a zero byte"),
        pytest.param(b"[]", 422, "(whole)", id="a list"),
        pytest.param(b"", 422, "(whole)", id="nothing"),
        pytest.param(b" " * 1_100_000, 413, "1,048,576", id="a megabyte"),
    ],
)
async def test_bodies(quiet_server: Server, body: bytes, status: int, word: str) -> None:
    answer = await quiet_server.client.post("/v1/jobs", content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text
    assert all(error["field"] and error["message"] for error in answer.json()["errors"])
    assert quiet_server.bus.commands() == []


async def test_a_misspelt_field_is_answered_with_the_one_that_is_meant(
    quiet_server: Server,
) -> None:
    misspelt = {name: value for name, value in SPEC.items() if name != "command"}
    body = {"spec": {**misspelt, "comand": "true"}}
    answer = await quiet_server.client.post("/v1/jobs", json=body)
    (error,) = answer.json()["errors"]
    assert (error["field"], error["fix"]) == ("spec.comand", "did you mean spec.command?")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"colour": "red"}, "spec.colour", id="an unknown field"),
        pytest.param({"max_steps": "many"}, "spec.max_steps", id="a wrong type"),
        pytest.param({"max_steps": -1}, "spec.max_steps", id="a negative number"),
        pytest.param({"max_steps": 10**30}, "spec.max_steps", id="an absurd number"),
        pytest.param({"resources": {"devices": 0}}, "spec.resources.devices", id="no device"),
        pytest.param({"command": ""}, "spec.command", id="an empty command"),
        pytest.param({"name": "n" * 100}, "spec.name", id="a name too long"),
        pytest.param({"hyperparameters": {"a": [1]}}, "spec.hyperparameters.a", id="a list"),
        pytest.param(
            {"environment": {"DRIVETRAIN_X": "1"}}, "spec.environment.DRIVETRAIN_X", id="reserved"
        ),
    ],
)
async def test_specs(quiet_server: Server, changes: dict[str, Any], field: str) -> None:
    answer = await quiet_server.client.post("/v1/jobs", json={"spec": {**SPEC, **changes}})
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert field in [error["field"] for error in errors]
    assert quiet_server.bus.commands() == []


@pytest.mark.parametrize("name", BAD_STUDIES)
async def test_studies(quiet_server: Server, name: str) -> None:
    changes, field = BAD_STUDIES[name]
    job = {**SPEC, "metric": {"name": "loss", "goal": "minimize"}}
    valid = {"name": "s", "job": job, "space": {"lr": RATE}, "max_trials": 1}
    spec = {key: value for key, value in {**valid, **changes}.items() if value is not None}
    answer = await quiet_server.client.post("/v1/studies", json={"spec": spec})
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert error["field"] == f"spec.{field}"
    assert error["fix"]
    assert quiet_server.bus.commands() == []


@pytest.mark.parametrize("content_type", ["application/yaml", "text/plain", None])
async def test_other_forms_of_a_body_are_not_guessed_at(
    quiet_server: Server, content_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = await quiet_server.client.post("/v1/jobs", content=b"name: x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["errors"][0]["fix"]


async def test_a_spec_that_is_too_large_for_an_event(quiet_server: Server) -> None:
    environment = {f"V{number}": "x" * 4000 for number in range(100)}
    body = {"spec": {**SPEC, "environment": environment}}
    answer = await quiet_server.client.post("/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "spec")
    assert quiet_server.bus.commands() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/jobs/job_short", 422),
        ("GET", f"/v1/jobs/job_{'a' * 26}", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?state=resting", 422),
        ("GET", "/v1/jobs?after=%00", 422),
        ("GET", "/v1/jobs?after=AAAA", 422),
        ("GET", "/v1/jobs?search=a%00b", 422),
        ("GET", "/?tag=%00", 422),
        ("DELETE", "/v1/jobs", 405),
        ("GET", "/v1/stream?last_event_id=nonsense", 422),
        ("GET", "/v1/parked/%20", 422),
        ("POST", "/v1/budgets/%00/remove", 422),
        ("GET", "/v1/cost/report?month=0000-01", 422),
        ("GET", "/v1/cost/report?month=9999-12", 422),
        pytest.param("GET", "/v1/cost/report?month=2026-1%D9%A1", 422, id="digit of Arabic"),
        ("GET", "/v1/cost/report?first=9999-12-31&last=9999-12-31", 422),
        ("GET", "/v1/cost/pools?last=0001-01-01", 422),
        ("GET", "/v1/cost/recommendations?last=0001-01-01", 422),
    ],
)
async def test_paths_and_queries(quiet_server: Server, method: str, path: str, status: int) -> None:
    answer = await quiet_server.client.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-21T09:00:00", "yesterday"],
)
@pytest.mark.parametrize("path", ["jobs", "studies", "parked"])
async def test_a_place_that_is_no_moment(quiet_server: Server, path: str, moment: str) -> None:
    after = position_text(moment, "x")
    answer = await quiet_server.client.get(f"/v1/{path}", params={"after": after})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "after")


@pytest.mark.parametrize("seq", ["\u00b2", "\u0663", "-1", "9" * 19, "x"])
async def test_a_place_in_a_timeline_that_is_no_number(server: Server, seq: str) -> None:
    story = Story()
    job = story.job("asked")
    await server.model.tell(*story.events)
    after = position_text(START, seq, "event-1")
    answer = await server.client.get(f"/v1/jobs/{job.job_id}/timeline", params={"after": after})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "after")


def archive(*members: tuple[str, bytes], **changes: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in changes.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content) if content else None)
    return buffer.getvalue()


GZIP = {"content-type": "application/gzip"}


async def test_code_is_kept_once_under_its_hash(server: Server) -> None:
    content = archive(("train.py", b"print(1)"))
    first = await server.client.post("/v1/code", content=content, headers=GZIP)
    again = await server.client.post("/v1/code", content=content, headers=GZIP)
    assert (first.status_code, again.status_code) == (201, 200)
    kept = first.json()
    assert kept["uri"] == f"store:code/default/{kept['sha256']}.tar.gz"
    assert await server.objects.get(f"code/default/{kept['sha256']}.tar.gz") == content
    body = {"spec": {**SPEC, "code": {"uri": kept["uri"], "sha256": kept["sha256"]}}}
    assert (await server.client.post("/v1/jobs", json=body)).status_code == 202


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (StoreFailure.READ_ONLY, "the object store is read-only"),
        (StoreFailure.FULL, "the object store is full"),
        (StoreFailure.UNAVAILABLE, "the object store is unavailable"),
    ],
)
async def test_a_failure_of_the_object_store_is_named_as_that(
    quiet_server: Server, monkeypatch: pytest.MonkeyPatch, failure: StoreFailure, words: str
) -> None:
    async def fail(key: str, content: bytes) -> bool:
        raise StoreError("object store: /objects: no", failure)

    monkeypatch.setattr(quiet_server.objects, "put_if_absent", fail)
    content = archive(("train.py", b"print(1)"))
    answer = await quiet_server.client.post("/v1/code", content=content, headers=GZIP)
    assert (answer.status_code, answer.json()["code"]) == (503, failure.value)
    assert words in answer.json()["detail"]


def bomb() -> bytes:
    """A header that claims a name of a gigabyte."""
    info = tarfile.TarInfo("x")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 2**30
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"x" * 1024)


def chain(kind: bytes) -> bytes:
    """Headers that each only describe the next one."""
    info = tarfile.TarInfo("x")
    info.type = kind
    content = b"11 path=xy\n" if kind == tarfile.XHDTYPE else b"xy\0"
    info.size = len(content)
    return gzip.compress((info.tobuf(tarfile.GNU_FORMAT) + content.ljust(512, b"\0")) * 1500)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not gzip", id="not gzip"),
        pytest.param(gzip.compress(b"not a tar"), id="not a tar"),
        pytest.param(archive(("train.py", b"x" * 5000))[:-20], id="cut short"),
        pytest.param(archive(("../x.py", b"x")), id="leaves the archive"),
        pytest.param(archive(("/etc/x", b"x")), id="absolute"),
        pytest.param(archive(("x", b""), type=tarfile.SYMTYPE, linkname="/etc/passwd"), id="link"),
        pytest.param(archive(("x", b""), type=tarfile.FIFOTYPE), id="pipe"),
        pytest.param(archive(), id="empty"),
        pytest.param(bomb(), id="a header of a gigabyte"),
        pytest.param(chain(tarfile.XHDTYPE), id="a chain of attributes"),
        pytest.param(chain(tarfile.GNUTYPE_LONGNAME), id="a chain of names"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_archives(quiet_server: Server, content: bytes) -> None:
    answer = await quiet_server.client.post("/v1/code", content=content, headers=GZIP)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_archive"), answer.text
    assert await quiet_server.objects.list("code/") == []


async def test_an_upload_is_bounded(quiet_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_CODE_BYTES", 1000)
    answer = await quiet_server.client.post("/v1/code", content=b"x" * 1001, headers=GZIP)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    answer = await quiet_server.client.post("/v1/code", content=b"x", headers=JSON)
    assert answer.status_code == 415


async def test_few_archives_are_in_memory_at_once_however_slow_the_store_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_now = most = 0
    put = server.objects.put_if_absent

    async def slow(key: str, content: bytes) -> bool:
        nonlocal num_now, most
        num_now, most = num_now + 1, max(most, num_now + 1)
        await asyncio.sleep(0.05)
        num_now -= 1
        return await put(key, content)

    monkeypatch.setattr(server.objects, "put_if_absent", slow)
    contents = [archive(("train.py", b"%d" % n)) for n in range(12)]
    answers = await asyncio.gather(
        *(server.client.post("/v1/code", content=one, headers=GZIP) for one in contents)
    )
    assert {answer.status_code for answer in answers} == {201}
    assert most == MAX_UPLOADS_IN_MEMORY


@pytest.mark.parametrize("path", ["/v1/jobs?limt=5", "/v1/nodes?x", "/v1/parked?stat=open"])
async def test_a_misspelt_parameter_is_refused(quiet_server: Server, path: str) -> None:
    answer = await quiet_server.client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
