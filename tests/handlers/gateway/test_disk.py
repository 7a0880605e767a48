"""A disk that fills up is shown on every page, and with every answer that something fails."""

from pathlib import Path

import pytest

from services.runtime import disk
from services.runtime.disk import Disk
from tests.handlers.gateway.model import Model, serving, sign_in

GB = 1024**3


@pytest.mark.parametrize(
    ("free_bytes", "want"),
    [
        pytest.param(50 * GB, None, id="enough"),
        pytest.param(1 * GB, "almost full (1,074 MB free)", id="almost full"),
        pytest.param(0, "is full (0 MB free)", id="full"),
    ],
)
async def test_every_page_warns_of_a_disk_that_fills_up(
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int,
    want: str | None,
) -> None:
    monkeypatch.setattr(disk, "read_disk", lambda path: Disk(free_bytes, 100 * GB))
    async with serving(model, data_directory=tmp_path) as server:
        headers = await sign_in(server) | {"accept": "text/html"}
        for path in ("/", "/nodes", "/parked", "/studies"):
            text = (await server.stranger.get(path, headers=headers)).text
            assert (f"The disk of {tmp_path}" in text) == (want is not None), path
            assert want is None or want in text


async def test_an_answer_that_a_part_is_unavailable_names_the_full_disk(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "read_disk", lambda path: Disk(0, 100 * GB))
    resources = {"device_type": "cpu"}
    body = {"spec": {"name": "n", "command": ["true"], "resources": resources}, "seconds": 1}
    async with serving(model, data_directory=tmp_path) as server:
        answer = await server.client.post("/v1/estimates", json=body)
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("the cost service cannot be reached")
    assert f"The disk of {tmp_path} is full" in answer.json()["detail"]


async def test_pages_are_shown_though_a_linked_disk_cannot_be_reached(
    model: Model, tmp_path: Path
) -> None:
    link = tmp_path / "pods"
    link.symlink_to("x" * 300)  # no system call about it succeeds, as where a server is gone
    with pytest.raises(OSError, match="too long"):
        link.is_dir()
    async with serving(model, data_directory=tmp_path) as server:
        headers = await sign_in(server) | {"accept": "text/html"}
        assert (await server.stranger.get("/nodes", headers=headers)).status_code == 200
