"""Downloads: what a job's program wrote, and the shards of its checkpoints."""

import asyncio
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from drivetrain_schemas import strict_json
from drivetrain_schemas.job_files import PART_BYTES, FileList, JobFile, JobLink, list_key
from services.gateway import context, stored_files
from services.gateway.rest.files import MAX_PATHS
from services.gateway.stored_files import Gone, verified
from tests.handlers.gateway.model import Server
from tests.handlers.gateway.story import JobStory, Story

AT = "2026-01-01T00:00:00Z"


async def started(server: Server) -> JobStory:
    story = Story()
    job = story.job("digits")
    job.waits()
    job.starts()
    await server.model.tell(*story.events)
    story.events.clear()
    return job


async def put_list(server: Server, job: JobStory, key: str, **contents: bytes) -> None:
    """A list at this key, and the blobs that it names. Names of files begin with `dir/`."""
    files = []
    for name, content in contents.items():
        parts = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
        names = [f"{hashlib.sha256(part).hexdigest()}-00000001" for part in parts]
        for part, blob in zip(parts, names, strict=True):
            await server.objects.put(f"files/default/{job.job_id}/blobs/{blob}", part)
        files.append(
            JobFile(
                path=f"dir/{name}",
                size_bytes=len(content),
                mode=0o640,
                modified_at_ns=1_577_836_800 * 10**9,
                sha256=hashlib.sha256(content).hexdigest(),
                parts=tuple(names),
            )
        )
    stored = FileList(
        **{**job.run, "tenant_id": "default"},
        files=tuple(files),
        links=(JobLink(path="best", target="dir/model"),),
        summary={"num_files": len(files), "size_bytes": 1, "num_left_out": 1, "left_out": ["x: y"]},
        saved_at=AT,
    )
    await server.objects.put(key, stored.model_dump_json().encode())


def newest_list(job: JobStory) -> str:
    return f"files/default/{job.job_id}/{list_key(job.run['fence'], 1, 1)}"


async def test_files_of_a_job_are_listed_and_downloaded(server: Server) -> None:
    job = await started(server)
    base = f"/v1/jobs/{job.job_id}/files"
    assert (await server.client.get(base)).json()["files"] == []
    large = bytes(PART_BYTES) + b"end"
    await put_list(server, job, newest_list(job), model=large, empty=b"")
    listed = (await server.client.get(base)).json()
    assert [file["path"] for file in listed["files"]] == ["best", "dir/empty", "dir/model"]
    assert listed["files"][0]["target"] == "dir/model"
    assert listed["files"][2] == {
        "path": "dir/model",
        "size_bytes": len(large),
        "mode": "640",
        "modified_at": "2020-01-01T00:00:00Z",
        "sha256": hashlib.sha256(large).hexdigest(),
        "target": None,
    }
    assert (listed["num_left_out"], listed["left_out"]) == (1, ["x: y"])
    answer = await server.client.get(f"{base}/content", params={"path": "dir/model"})
    assert answer.content == large
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''model"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/octet-stream"
    empty = await server.client.get(f"{base}/content", params={"path": "dir/empty"})
    assert (empty.status_code, empty.content) == (200, b"")


async def test_a_list_is_read_once_for_the_content_of_many_files(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await started(server)
    names = [f"file-{number}" for number in range(20)]
    await put_list(server, job, newest_list(job), **{name: name.encode() for name in names})
    read = Counter[str]()
    stream = server.objects.stream

    def counted(key: str) -> AsyncIterator[bytes]:
        read[key] += 1
        return stream(key)

    monkeypatch.setattr(server.objects, "stream", counted)
    base = f"/v1/jobs/{job.job_id}/files"
    for name in names:
        answer = await server.client.get(f"{base}/content", params={"path": f"dir/{name}"})
        assert answer.content == name.encode()
    assert read[newest_list(job)] == 1
    assert len((await server.client.get(base)).json()["files"]) == len(names) + 1
    assert read[newest_list(job)] == 2  # a list that is shown is read anew


async def test_a_list_of_too_many_values_is_passed_over(server: Server) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"x")
    hostile = f"files/default/{job.job_id}/{list_key(job.run['fence'], 2, 1)}"
    await put_list(server, job, hostile, other=b"y")
    valid = (await server.objects.get(hostile)).removesuffix(b"}")
    more = b"0," * strict_json.MAX_VALUES
    await server.objects.put(hostile, valid + b',"more":[' + more + b"0]}")
    listed = (await server.client.get(f"/v1/jobs/{job.job_id}/files")).json()
    assert {file["path"] for file in listed["files"]} == {"dir/model", "best"}


def test_kept_lists_are_bounded() -> None:
    job = Story().job("digits")
    job.starts()
    files = FileList(
        **{**job.run, "tenant_id": "default"},
        summary={"num_files": 0, "size_bytes": 0, "num_left_out": 0, "left_out": []},
        saved_at=AT,
    )
    kept = stored_files.KeptLists()
    third = stored_files.MAX_KEPT_BYTES // 3
    for key in ("a", "b", "c"):
        kept.keep(key, files, third)
    assert kept.get("a") is files
    kept.keep("d", files, third)
    assert [kept.get(key) is files for key in ("a", "b", "c", "d")] == [True, False, True, True]
    kept.keep("large", files, stored_files.MAX_KEPT_BYTES + 1)
    assert kept.get("large") is None


@pytest.mark.parametrize("path", ["nothing", "../../etc/passwd", "/etc/passwd", "dir", "best"])
async def test_only_listed_files_are_read(server: Server, path: str) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    answer = await server.client.get(f"/v1/jobs/{job.job_id}/files/content", params={"path": path})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_files_in_a_common_blob_are_downloaded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together, the blob is read once."""
    job = await started(server)
    packed = {"blob": f"{hashlib.sha256(b'onetwo').hexdigest()}-00000001", "blob_bytes": 6}
    key = f"files/default/{job.job_id}/blobs/{packed['blob']}"
    await server.objects.put(key, b"onetwo")
    listed = {"two": 3, "other": 0, "one": 0, "large": 0}
    contents = {"two": b"two", "other": b"two", "one": b"one", "large": b"alone"}
    await put_list(server, job, newest_list(job), **contents)
    stored = json.loads(await server.objects.get(newest_list(job)))
    for file in stored["files"][:3]:
        file["packed"] = {**packed, "offset": listed[file["path"].removeprefix("dir/")]}
        file["parts"] = []
    await server.objects.put(newest_list(job), json.dumps(stored).encode())
    base = f"/v1/jobs/{job.job_id}/files/content"
    answer = await server.client.get(base, params={"path": "dir/two"})
    assert (answer.status_code, answer.content) == (200, b"two")
    answer = await server.client.get(base, params={"path": "dir/other"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    read = Counter[str]()
    stream = server.objects.stream
    monkeypatch.setattr(server.objects, "stream", lambda key: (read.update([key]), stream(key))[1])
    paths = ["dir/one", "dir/two", "dir/large", "dir/one"]
    answer = await server.client.get(base, params={"path": paths})
    assert (answer.status_code, answer.content) == (200, b"onetwoaloneone")
    assert (answer.headers["Content-Length"], read[key]) == ("14", 1)
    answer = await server.client.get(base, params={"path": ["dir/one", "dir/nothing"]})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    answer = await server.client.get(base, params={"path": ["dir/one"] * (MAX_PATHS + 1)})
    assert answer.status_code == 422


@pytest.mark.parametrize("size_bytes", [0, 6, 8])
async def test_a_file_whose_list_gives_another_size_is_refused(
    server: Server, size_bytes: int
) -> None:
    """The list is written by the job's program."""
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    stored = json.loads(await server.objects.get(newest_list(job)))
    stored["files"][0]["size_bytes"] = size_bytes
    await server.objects.put(newest_list(job), json.dumps(stored).encode())
    query = {"path": "dir/model"}
    answer = await server.client.get(f"/v1/jobs/{job.job_id}/files/content", params=query)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_part_that_is_gone_or_changed_is_not_sent(server: Server) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    (blob,) = [info.key for info in await server.objects.list("files/") if "/blobs/" in info.key]
    await server.objects.put(blob, b"changed")
    query = {"path": "dir/model"}
    answer = await server.client.get(f"/v1/jobs/{job.job_id}/files/content", params=query)
    assert answer.status_code == 404
    assert "what is stored is damaged" in answer.json()["detail"]


async def test_downloads_at_once_are_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    base = f"/v1/jobs/{job.job_id}/files/content"
    for _ in range(context.MAX_DOWNLOADS + 1):  # each ends before the next
        assert (await server.client.get(base, params={"path": "dir/model"})).status_code == 200
    for bound in ("MAX_DOWNLOADS", "MAX_DOWNLOADS_OF_JOB"):
        with monkeypatch.context() as patch:
            patch.setattr(context, bound, 0)
            refused = await server.client.get(base, params={"path": "dir/model"})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_downloads")


async def test_downloads_that_read_their_first_piece_are_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    is_read, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow_parts(*_: Any) -> AsyncIterator[bytes]:
        is_read.set()
        await may_go_on.wait()
        yield b"weights"

    monkeypatch.setattr(stored_files, "parts_of", slow_parts)
    monkeypatch.setattr(context, "MAX_DOWNLOADS_OF_JOB", 1)
    url, query = f"/v1/jobs/{job.job_id}/files/content", {"path": "dir/model"}
    first = asyncio.create_task(server.client.get(url, params=query))
    await is_read.wait()
    second = asyncio.create_task(server.client.get(url, params=query))
    await asyncio.wait({second}, timeout=1.0)
    may_go_on.set()
    assert ((await first).status_code, (await second).status_code) == (200, 429)


async def test_files_and_shards_of_a_checkpoint(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.waits()
    job.starts()
    checkpoint_id = job.saves(100)
    await server.model.tell(*story.events)
    (row,) = await server.model.rows("select manifest_key from checkpoints")
    directory = row["manifest_key"].rpartition("/")[0]
    digest = hashlib.sha256(b"weights").hexdigest()
    shard = {"key": "rank-0.safetensors", "size_bytes": 7, "sha256": digest, "rank": 0}
    manifest: dict[str, Any] = {
        **{**job.run, "tenant_id": "default"},
        "step": 100,
        "world_size": 1,
        "shards": [shard],
        "written_at": AT,
    }
    await server.objects.put(row["manifest_key"], json.dumps(manifest).encode())
    await server.objects.put(f"{directory}/rank-0.safetensors", b"weights")
    await server.objects.put(f"{directory}/secret", b"not in the manifest")
    base = f"/v1/checkpoints/{checkpoint_id}/shards"
    listed = (await server.client.get(base)).json()
    assert (listed["step"], listed["shards"]) == (100, [shard])
    content = await server.client.get(f"{base}/content", params={"key": "rank-0.safetensors"})
    assert content.content == b"weights"
    for other in (b"Weights", b"weight", b"weights and more"):
        await server.objects.put(f"{directory}/rank-0.safetensors", other)
        changed = await server.client.get(f"{base}/content", params={"key": "rank-0.safetensors"})
        assert changed.status_code == 404
        assert other not in changed.content
    hidden = await server.client.get(f"{base}/content", params={"key": "secret"})
    assert hidden.status_code == 404

    at_checkpoint = f"/v1/jobs/{job.job_id}/files?checkpoint={checkpoint_id}"
    assert (await server.client.get(at_checkpoint)).status_code == 404
    await put_list(server, job, f"{directory}/files.json", log=b"1\n")
    assert (await server.client.get(at_checkpoint)).json()["checkpoint_id"] == checkpoint_id
    page = (await server.client.get(at_checkpoint.removeprefix("/v1"))).text
    assert "rank-0.safetensors" in page
    assert "dir/log" in page
    newest = (await server.client.get(f"/v1/jobs/{job.job_id}/files")).json()
    assert [file["path"] for file in newest["files"]] == ["best", "dir/log"]


async def test_files_of_an_earlier_attempt(server: Server) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"first")
    job.attempt = 2
    await put_list(server, job, newest_list(job), state=b"second")
    base = f"/v1/jobs/{job.job_id}/files"
    for query, want in (
        ("", "dir/state"),
        ("?attempt=2", "dir/state"),
        ("?attempt=1", "dir/model"),
    ):
        listed = (await server.client.get(base + query)).json()
        assert [file["path"] for file in listed["files"]] == ["best", want]
    content = await server.client.get(f"{base}/content?path=dir/model&attempt=1")
    assert content.content == b"first"
    assert (await server.client.get(f"{base}?attempt=3")).status_code == 404


async def test_the_page_shows_paths_as_text_and_links_to_the_content(server: Server) -> None:
    job = await started(server)
    empty = await server.client.get(f"/jobs/{job.job_id}/files")
    assert "No files saved yet." in empty.text
    await put_list(server, job, newest_list(job), **{"<b>&x": b"weights"})
    page = (await server.client.get(f"/jobs/{job.job_id}/files")).text
    assert "<code>dir/&lt;b&gt;&amp;x</code>" in page
    (link,) = re.findall(r'href="(/v1/[^"]+)"', page)
    assert (await server.client.get(html.unescape(link))).content == b"weights"
    assert "1 file of the job not saved" in page


async def test_what_another_tenant_stored_is_not_found(server: Server) -> None:
    job = await started(server)
    await put_list(server, job, newest_list(job), model=b"weights")
    async with server.model.database.connection() as connection:
        await connection.execute("update jobs set tenant_id = 'other'")
    base = f"/v1/jobs/{job.job_id}/files"
    for answer in (
        await server.client.get(base),
        await server.client.get(f"{base}/content", params={"path": "dir/model"}),
    ):
        assert answer.status_code == 404


async def test_of_a_large_shard_that_is_not_the_named_one_the_end_is_never_sent() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"two", b"three"):
            yield piece

    right = hashlib.sha256(b"onetwothree").hexdigest()
    assert b"".join([it async for it in verified(pieces(), 11, right)]) == b"onetwothree"
    wrong = verified(pieces(), 11, "a" * 64)
    assert [await anext(wrong), await anext(wrong)] == [b"one", b"two"]
    with pytest.raises(Gone):
        await anext(wrong)
