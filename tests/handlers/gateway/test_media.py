"""What a job logged besides numbers: lists and bytes, which no browser takes for a page."""

import hashlib
from typing import Any

import pytest

from services.gateway.rest import media as rest_media
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import Story

SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
AT = "2026-01-01T00:00:00Z"


def item(content: bytes = SCRIPT, **fields: Any) -> dict[str, Any]:
    return {
        "name": "worst",
        "step": 10,
        "item": 0,
        "attempt": 1,
        "media": "image",
        "image_form": "png",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
        "caption": "<script>alert(1)</script>",
        "file_name": None,
        "logged_at": AT,
        **fields,
    }


class Metrics:
    """The answers of the metrics service, and what it was asked."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = items
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, part: str, path: str, given: Any) -> Any:
        assert (part, path) == ("metrics", "/media")
        self.asked.append(given)
        if given.get("name") is None:
            names = {"media": "image", "num_steps": 1, "first_step": 10, "last_step": 10}
            return {"names": [{"name": "worst", **names}]}
        return {"items": [dict(one) for one in self.items]}


async def started(model: Model) -> str:
    story = Story()
    job = story.job("digits")
    job.starts()
    await model.tell(*story.events)
    return job.job_id


async def put(server: Server, job_id: str, content: bytes, at: bytes | None = None) -> None:
    digest = hashlib.sha256(at or content).hexdigest()
    await server.objects.put(f"media/default/{job_id}/{digest}", content)


async def test_names_and_items_are_listed_with_the_address_of_the_bytes(model: Model) -> None:
    job_id = await started(model)
    metrics = Metrics(item(name="a b&c=1", step=10))
    async with serving(model, forward=metrics) as server:
        names = (await server.client.get(f"/v1/jobs/{job_id}/media")).json()["names"]
        assert [(one["name"], one["media"]) for one in names] == [("worst", "image")]
        answer = await server.client.get(
            f"/v1/jobs/{job_id}/media/items", params={"name": "a b&c=1", "to_step": 90}
        )
        (found,) = answer.json()["items"]
        assert metrics.asked[-1] == {
            "job_id": job_id, "name": "a b&c=1", "to_step": 90, "limit": 500,
        }  # fmt: skip
        await put(server, job_id, SCRIPT)
        assert (await server.client.get(found["content_url"])).content == SCRIPT
        assert metrics.asked[-1]["name"] == "a b&c=1"


@pytest.mark.parametrize(
    ("fields", "content_type", "shown"),
    [
        ({"image_form": "png"}, "image/png", "inline"),
        ({"image_form": "jpeg"}, "image/jpeg", "inline"),
        ({"image_form": "svg+xml"}, "application/octet-stream", "attachment"),
        ({"image_form": None}, "application/octet-stream", "attachment"),
        ({"media": "page"}, "application/octet-stream", "attachment"),
        ({"media": "text"}, "text/plain; charset=utf-8", "inline"),
        ({"media": "table"}, "application/json", "inline"),
        ({"media": "histogram"}, "application/json", "inline"),
        ({"media": "file", "file_name": 'a"\r\nX: y.html'}, "application/octet-stream",
         "attachment"),
    ],
)  # fmt: skip
async def test_the_type_follows_from_the_kind_and_nothing_in_it_may_run(
    model: Model, fields: dict[str, Any], content_type: str, shown: str
) -> None:
    job_id = await started(model)
    async with serving(model, forward=Metrics(item(**fields))) as server:
        await put(server, job_id, SCRIPT)
        answer = await server.client.get(
            f"/v1/jobs/{job_id}/media/content", params={"name": "worst", "step": 10}
        )
        assert (answer.status_code, answer.content) == (200, SCRIPT)
        headers = answer.headers
        assert headers["content-type"] == content_type
        assert headers["content-disposition"].startswith(f"{shown}; filename*=UTF-8''")
        assert headers.get_list("content-security-policy") == ["default-src 'none'; sandbox"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-length"] == str(len(SCRIPT))
        assert "x" not in headers


async def test_only_the_bytes_that_were_logged_are_sent(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await started(model)
    path, query = f"/v1/jobs/{job_id}/media/content", {"name": "worst", "step": 10}
    async with serving(model, forward=Metrics(item())) as server:
        assert (await server.client.get(path, params=query)).status_code == 404
        await put(server, job_id, b"something else", at=SCRIPT)
        assert (await server.client.get(path, params=query)).status_code == 404
        await put(server, job_id, SCRIPT)
        assert (await server.client.get(path, params=query)).status_code == 200
        monkeypatch.setattr(rest_media, "MAX_MEDIA_BYTES", 10)
        assert (await server.client.get(path, params=query)).status_code == 404
        for wrong in ({"step": 11}, {"item": 1}):
            answer = await server.client.get(path, params={**query, **wrong})
            assert answer.status_code == 404


@pytest.mark.parametrize("path", ["", "/items?name=a", "/content?name=a&step=1"])
async def test_a_job_of_another_tenant_or_none_has_no_media(model: Model, path: str) -> None:
    metrics = Metrics(item())
    async with serving(model, forward=metrics) as server:
        answer = await server.client.get(f"/v1/jobs/job_{'a' * 26}/media{path}")
        assert answer.status_code == 404
        assert metrics.asked == []
