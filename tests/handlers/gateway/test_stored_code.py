"""Uploaded code: how much of it is taken, what is deleted, and what never is."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.gateway import commands, stored_code
from services.gateway.instruments import CODE_DELETED
from services.gateway.model_age import STALE_SECONDS
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectStore
from services.runtime.service import Platform
from tests.fakes import ManualClock
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.test_api import SPEC, accept
from tests.handlers.gateway.test_bad_requests import GZIP, archive
from tests.object_stores import opened_store

MIB = 1024 * 1024
METRIC = {"max_steps": 10, "metric": {"name": "loss", "goal": "minimize"}}


@pytest_asyncio.fixture(params=["directory", "s3"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectStore]:
    async with opened_store(request.param, request, tmp_path, monkeypatch) as opened:
        yield opened


@cache
def packed(text: str) -> bytes:
    """The same bytes each time, which hold the time of packing."""
    return archive(("train.py", text.encode()))


async def upload(server: Server, text: str) -> dict[str, Any]:
    answer = await server.client.post("/v1/code", content=packed(text), headers=GZIP)
    assert answer.status_code in (200, 201), answer.text
    return {name: answer.json()[name] for name in ("uri", "sha256")}


def study_with(code: dict[str, Any]) -> dict[str, Any]:
    space = {"learning_rate": {"type": "uniform", "low": 0.001, "high": 0.3}}
    return {"name": "a", "job": {**SPEC, **METRIC, "code": code}, "space": space, "max_trials": 4}


async def a_day_passes(model: Model) -> None:
    async with model.database.transaction() as tx:
        await tx.connection.execute("update code set keep_until = keep_until - interval '25 hours'")


async def is_kept(store: ObjectStore, code: dict[str, Any]) -> bool:
    try:
        return bool(await store.get(code["uri"].removeprefix("store:")))
    except NoSuchObject:
        return False


async def total(model: Model) -> int:
    (row,) = await model.rows("select coalesce(sum(size_bytes), 0)::bigint as n from code_totals")
    return int(row["n"])


async def test_code_that_no_request_names_goes_after_a_day(model: Model) -> None:
    async with serving(model, answer=accept) as server:
        unused, used, of_study = [await upload(server, text) for text in "abc"]
        body = {"spec": {**SPEC, "code": used}}
        assert (await server.client.post("/v1/jobs", json=body)).status_code == 201
        study = {"spec": study_with(of_study)}
        assert (await server.client.post("/v1/studies", json=study)).status_code == 201
        before, deleted = await total(model), CODE_DELETED._value.get()
        assert await stored_code.delete_some(server.platform) == 0
        for _ in range(3):
            await a_day_passes(model)
            await stored_code.delete_some(server.platform)
        kept = [await is_kept(server.objects, code) for code in (unused, used, of_study)]
        assert kept == [False, True, True]
        assert CODE_DELETED._value.get() == deleted + 1
        assert 0 < await total(model) < before
        assert (await upload(server, "a"))["uri"] == unused["uri"]
        assert await is_kept(server.objects, unused)


async def test_code_that_is_uploaded_or_named_again_has_another_day(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    async with serving(model) as server:  # nothing is accepted, so nothing is known of a request
        again, named, of_study, unused = [await upload(server, text) for text in "abcd"]
        await a_day_passes(model)
        await upload(server, "a")
        await server.client.post("/v1/jobs", json={"spec": {**SPEC, "code": named}})
        await server.client.post("/v1/studies", json={"spec": study_with(of_study)})
        assert await stored_code.delete_some(server.platform) == 1
        codes = (again, named, of_study, unused)
        kept = [await is_kept(server.objects, code) for code in codes]
        assert kept == [True, True, True, False]


async def test_an_upload_during_its_deletion_stores_it_anew(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(model) as server:
        code = await upload(server, "a")
        await a_day_passes(model)
        begun, may_go_on = asyncio.Event(), asyncio.Event()
        delete = server.objects.delete

        async def held(key: str) -> None:
            begun.set()
            await may_go_on.wait()
            await delete(key)

        monkeypatch.setattr(server.objects, "delete", held)
        deletion = asyncio.create_task(stored_code.delete_some(server.platform))
        await begun.wait()
        again = asyncio.create_task(upload(server, "a"))
        async with asyncio.timeout(30):
            while not await model.rows("select from pg_locks where not granted"):
                assert not again.done(), "the upload did not wait for the deletion"
                await asyncio.sleep(0.01)
        may_go_on.set()
        assert (await deletion, await again) == (1, code)
        assert await is_kept(server.objects, code)
        assert await total(model) > 0


async def test_a_deletion_that_fails_is_done_again(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(model) as server:
        code = await upload(server, "a")
        before = await total(model)
        await a_day_passes(model)

        async def fail(key: str) -> None:
            raise StoreError("the store does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(server.objects, "delete", fail)
            with pytest.raises(StoreError):
                await stored_code.delete_some(server.platform)
        assert await total(model) == before
        assert await stored_code.delete_some(server.platform) == 1
        assert not await is_kept(server.objects, code)


async def test_more_than_the_quota_is_refused_with_the_way_out(model: Model) -> None:
    async with serving(model, code_quota_bytes=64 * MIB) as server:
        first = await upload(server, "a")
        await model.rows("update code_totals set size_bytes = $1 returning 1", 64 * MIB)
        answer = await server.client.post("/v1/code", content=packed("b"), headers=GZIP)
        refusal = answer.json()
        assert (answer.status_code, refusal["code"]) == (413, "code_quota")
        assert f"{64 * MIB:,} bytes" in refusal["detail"]
        assert "DRIVETRAIN_CODE_QUOTA_BYTES" in refusal["errors"][0]["fix"]
        assert [one.key for one in await server.objects.list("code/")] == [
            first["uri"].removeprefix("store:")
        ]
        assert await total(model) == 64 * MIB
        assert await upload(server, "a") == first  # it is stored already
        others = {"x-tenant-of-a-test": "other", **GZIP}
        answer = await server.client.post("/v1/code", content=packed("b"), headers=others)
        assert answer.status_code == 201


async def test_uploads_at_once_are_counted_once_each(model: Model) -> None:
    async with serving(model) as server:
        await asyncio.gather(*(upload(server, text) for text in "abcabcabc"))
        stored = await server.objects.list("code/")
        assert len(stored) == 3
        assert await total(model) == sum(one.size_bytes for one in stored)


async def test_what_a_rebuild_forgot_is_found_in_the_store(
    model: Model, store: ObjectStore
) -> None:
    async with serving(model) as server:
        platform: Platform = replace(server.platform, object_store=store)
        hashes = [secrets.token_hex(32) for _ in range(stored_code.STEP_ARCHIVES + 1)]
        for sha256 in hashes:
            await store.put(stored_code.key_of("default", sha256), b"xx")
        await store.put("code/default/of-somebody-else", b"xx")
        await stored_code.find(platform)
        await stored_code.find(platform)
        assert await total(model) == 2 * len(hashes)
        assert await stored_code.delete_some(platform) == 0
        await a_day_passes(model)
        assert await stored_code.delete_some(platform) == stored_code.STEP_ARCHIVES
        assert await stored_code.delete_some(platform) == 1
        assert [one.key for one in await store.list("code/")] == ["code/default/of-somebody-else"]
        assert await total(model) == 0


async def test_nothing_is_deleted_while_the_read_model_is_behind(model: Model) -> None:
    clock = ManualClock()
    async with serving(model) as server:
        platform = replace(server.platform, clock=clock)
        age = Age()
        code = await upload(server, "a")
        await a_day_passes(model)
        task = asyncio.create_task(stored_code.tidy(age, platform))  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            await asked_again(clock, age)
            assert await is_kept(server.objects, code)
            age.now = 0.0
            while await is_kept(server.objects, code):
                await asyncio.sleep(0.01)
                await clock.advance(stored_code.PASS_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Age:
    """Of a read model that is behind until a test says otherwise."""

    def __init__(self) -> None:
        self.now = STALE_SECONDS
        self.num_asked = 0

    def seconds(self, now: object) -> float:
        self.num_asked += 1
        return self.now


async def asked_again(clock: ManualClock, age: Age) -> None:
    while age.num_asked < 3:
        await asyncio.sleep(0.01)
        await clock.advance(stored_code.PASS_SECONDS)
