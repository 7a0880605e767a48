"""A job's files in the object store: announced, and removed when no list names them any more."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas import strict_json
from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.job_files import FileList, FilesSaved, JobFile, list_key
from services.checkpoints import store_files
from tests.handlers.checkpoints.builders import (
    AT,
    JOB,
    PREFIX,
    key_of,
    make_failed,
    make_granted,
    make_written,
    name_of,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue

FILES = f"files/default/{JOB}/"


def blob_of(content: str, save: int) -> str:
    return f"{hashlib.sha256(content.encode()).hexdigest()}-{save:08x}"


def make_list(*blobs: str, fence: int = 1, **fields: Any) -> bytes:
    files = tuple(
        JobFile(
            path=f"file{n}", size_bytes=1, mode=0o644, modified_at_ns=0, sha256=b[:64], parts=(b,)
        )
        for n, b in enumerate(blobs)
    )
    values: dict[str, Any] = {
        "tenant_id": "default",
        "job_id": JOB,
        "run_id": run_id_for(JOB, fence),
        "attempt": fence,
        "fence": fence,
        "files": files,
        "summary": {"num_files": len(files), "size_bytes": len(files), "num_left_out": 2},
        "saved_at": AT,
    }
    return FileList(**(values | fields)).model_dump_json().encode()


async def put_blob(catalogue: Catalogue, content: str, save: int = 1) -> str:
    name = blob_of(content, save)
    await catalogue.object_store.put(f"{FILES}blobs/{name}", content.encode())
    return name


async def put_list(catalogue: Catalogue, number: int, *blobs: str, **fields: Any) -> str:
    key = list_key(fields.get("fence", 1), number, 7)
    await catalogue.object_store.put(FILES + key, make_list(*blobs, **fields))
    return key


async def put_checkpoint(
    catalogue: Catalogue, step: int, *blobs: str, is_reported: bool = True
) -> list[Payload]:
    content = make_list(*blobs)
    await catalogue.object_store.put(f"{PREFIX}{name_of(step)}/files.json", content)
    await write_checkpoint(catalogue.object_store, step)
    manifest = json.loads(await catalogue.object_store.get(key_of(step)))
    manifest["shards"].append(
        {
            "key": "files.json",
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "rank": 0,
        }
    )
    manifest["files"] = {"num_files": len(blobs), "size_bytes": 1}
    await catalogue.object_store.put(key_of(step), json.dumps(manifest).encode())
    return await catalogue.deliver(make_written(step)) if is_reported else []


async def hours_pass(catalogue: Catalogue, hours: float) -> list[Payload]:
    async with catalogue.database.connection() as connection:
        await connection.execute(
            "update unnamed_blobs set seen_at = seen_at - $1 * interval '1 hour'", hours
        )
    return await catalogue.wait()


async def blobs(catalogue: Catalogue) -> set[str]:
    found = await catalogue.object_store.list(f"{FILES}blobs/")
    return {item.key.rpartition("/")[2] for item in found}


async def lists(catalogue: Catalogue) -> list[str]:
    found = await catalogue.object_store.list(f"{FILES}lists/")
    return [item.key.removeprefix(FILES) for item in found]


def two_hours_ahead(
    now: Callable[[asyncpg.Connection], Awaitable[float]],
) -> Callable[[asyncpg.Connection], Awaitable[float]]:
    async def later(connection: asyncpg.Connection) -> float:
        return await now(connection) + 7200.0

    return later


async def test_the_newest_list_is_announced_once(running: Catalogue) -> None:
    await put_list(running, 1)
    key = await put_list(running, 2)
    (saved,) = await running.wait()
    assert isinstance(saved, FilesSaved)
    assert (saved.run_id, saved.list_key) == (run_id_for(JOB, 1), FILES + key)
    assert (saved.files.num_files, saved.files.num_left_out) == (0, 2)
    assert await running.wait() == []


async def test_a_list_of_another_job_or_run_is_not_announced(running: Catalogue) -> None:
    await put_list(running, 1, job_id="job_" + "d" * 26)
    assert await running.wait() == []
    await put_list(running, 2, run_id=run_id_for(JOB, 3))
    assert await running.wait() == []


async def test_a_checkpoint_tells_of_its_files(running: Catalogue) -> None:
    (committed,) = await put_checkpoint(running, 10, await put_blob(running, "a"))
    assert committed.files.num_files == 1


async def test_a_blob_goes_an_hour_after_no_list_names_it(running: Catalogue) -> None:
    of_checkpoint, of_list = await put_blob(running, "a"), await put_blob(running, "b")
    lost = await put_blob(running, "lost")
    await put_checkpoint(running, 10, of_checkpoint)
    await put_list(running, 1, of_list)
    await running.wait()
    assert await blobs(running) == {of_checkpoint, of_list, lost}, "a save may be going on"
    await hours_pass(running, 1)
    assert await blobs(running) == {of_checkpoint, of_list}


async def test_a_blob_that_is_named_meanwhile_stays(running: Catalogue) -> None:
    late = await put_blob(running, "late")
    await running.wait()
    await put_checkpoint(running, 10, late)
    await hours_pass(running, 2)
    await hours_pass(running, 2)
    assert await blobs(running) == {late}


async def test_files_go_with_the_checkpoints_that_retention_deletes(running: Catalogue) -> None:
    names = [await put_blob(running, f"content {step}") for step in range(5)]
    for step, name in enumerate(names):
        await put_checkpoint(running, 10 * (step + 1), name)
    await running.wait()
    await hours_pass(running, 1)
    assert await blobs(running) == set(names[-3:])


async def test_files_go_with_what_is_deleted_after_the_last_run(running: Catalogue) -> None:
    names = [await put_blob(running, f"content {step}") for step in range(4)]
    for step, name in enumerate(names[:3]):
        await put_checkpoint(running, 10 * (step + 1), name)
    await put_checkpoint(running, 40, names[3], is_reported=False)
    unfinished = await put_blob(running, "unfinished")
    await running.object_store.put(f"{PREFIX}{name_of(50)}/files.json", make_list(unfinished))
    await running.deliver(make_failed())
    assert "deleted" in (await running.states()).values()
    await running.wait()
    await hours_pass(running, 2)
    assert await blobs(running) == {*names[1:], unfinished}

    async with running.database.connection() as connection:
        await connection.execute("update runs set ended_at = ended_at - interval '2 hours'")
    await running.wait()
    await running.wait()
    await hours_pass(running, 2)
    assert await blobs(running) == set(names[1:])


async def test_a_save_that_is_not_complete_keeps_its_files(running: Catalogue) -> None:
    name = await put_blob(running, "a")
    await running.object_store.put(f"{PREFIX}{name_of(10)}/files.json", make_list(name))
    await running.wait()
    await hours_pass(running, 2)
    assert await blobs(running) == {name}


async def test_old_lists_go_and_the_last_files_of_a_finished_job_stay(running: Catalogue) -> None:
    names = [await put_blob(running, f"content {number}") for number in range(4)]
    keys = [await put_list(running, number, name) for number, name in enumerate(names)]
    await running.wait()
    assert await lists(running) == keys[-2:]
    last = await put_list(running, 9, names[3], is_resumable=False)
    await running.deliver(make_failed())
    await running.wait()
    assert await lists(running) == [*keys[-2:], last]
    await hours_pass(running, 1)
    assert await blobs(running) == set(names[-2:])
    async with running.database.connection() as connection:
        left = await connection.fetch("select kind from intents where kind <> 'tidy'")
    assert left == []


async def test_nothing_is_deleted_beside_a_list_that_cannot_be_read(running: Catalogue) -> None:
    name = await put_blob(running, "a")
    await running.object_store.put(f"{FILES}{list_key(1, 1, 1)}", b'{"files": [')
    await running.wait()
    await hours_pass(running, 2)
    assert await blobs(running) == {name}
    await hours_pass(running, 23)  # a list of a newer version would have been read by now
    await hours_pass(running, 2)
    assert (await lists(running), await blobs(running)) == ([], set())


async def test_a_list_of_too_many_values_is_one_that_cannot_be_read(running: Catalogue) -> None:
    await put_list(running, 1)
    key = await put_list(running, 2)
    content = (await running.object_store.get(FILES + key)).removesuffix(b"}")
    more = b',"more":[' + b"0," * strict_json.MAX_VALUES + b"0]}"
    await running.object_store.put(FILES + key, content + more)
    (saved,) = await running.wait()
    assert isinstance(saved, FilesSaved)
    assert saved.list_key == f"{FILES}{list_key(1, 1, 7)}"


async def test_a_jump_of_the_clock_deletes_nothing(
    running: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await put_blob(running, "a")
    await running.wait()
    with monkeypatch.context() as patch:
        # As if the clock of the database were two hours ahead of what has passed here.
        patch.setattr(store_files, "now", two_hours_ahead(store_files.now))
        await hours_pass(running, 2)
        assert await blobs(running) == {name}
        await hours_pass(running, 2)
    assert await blobs(running) == set()


async def test_only_the_lists_that_are_kept_are_read(running: Catalogue) -> None:
    """A program of the job may write any number of large ones."""
    for number in range(20):
        await put_list(running, number)
    await running.object_store.put(f"{FILES}{list_key(1, 0, 7)}", b"not a list")
    await running.wait()
    assert await lists(running) == [list_key(1, 18, 7), list_key(1, 19, 7)]


async def test_files_of_a_second_attempt_replace_those_of_the_first(running: Catalogue) -> None:
    old = await put_list(running, 5)
    await running.deliver(make_failed(), make_granted(fence=2))
    new = await put_list(running, 1, fence=2)
    saved = await running.wait()
    assert [one.list_key for one in saved if isinstance(one, FilesSaved)][-1] == FILES + new
    assert await lists(running) == [old, new]
