"""A disk that fills up is shown on every page, before it is full and while it is."""

from pathlib import Path

import pytest

from services.gateway.pages import rendering
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
    monkeypatch.setattr(rendering, "read_disk", lambda path: Disk(free_bytes, 100 * GB))
    async with serving(model, data_directory=tmp_path) as server:
        headers = await sign_in(server) | {"accept": "text/html"}
        for path in ("/", "/nodes", "/parked", "/studies"):
            text = (await server.stranger.get(path, headers=headers)).text
            assert (f"The disk of {tmp_path}" in text) == (want is not None), path
            assert want is None or want in text
