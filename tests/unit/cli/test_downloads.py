"""Files and checkpoints on this machine: whole, verified, and nowhere else than asked for."""

import hashlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivetrain_schemas.job_files import MAX_PACKED_FILE_BYTES
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID

CHECKPOINT_ID = "ckpt_" + "c" * 26
BASE = f"/v1/jobs/{JOB_ID}/files"


def file_of(path: str, content: bytes = b"weights", **fields: Any) -> dict[str, Any]:
    return {
        "path": path,
        "size_bytes": len(content),
        "mode": "640",
        "modified_at": "2020-01-01T00:00:00Z",
        "sha256": hashlib.sha256(content).hexdigest(),
        "target": None,
        **fields,
    }


def serve(platform: FakePlatform, *files: dict[str, Any], content: bytes = b"weights") -> None:
    listed = {"files": list(files), "checkpoint_id": None, "num_left_out": 0, "left_out": []}
    platform.on("GET", BASE, listed)
    answer = platform.respond

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == f"{BASE}/content":
            platform.requests.append(request)
            return httpx.Response(200, content=content)
        return answer(request)

    platform.respond = respond  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_files_of_an_attempt_are_downloaded(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, file_of("out/model.pt"))
    assert cli("job", "download", JOB_ID, "out/model.pt", "--attempt", "1").code == 0
    asked = [request.url for request in platform.requests if request.url.path.startswith(BASE)]
    assert [url.params["attempt"] for url in asked] == ["1", "1"]


def test_one_file_may_get_another_name(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, file_of("out/model.pt"))
    assert cli("job", "download", JOB_ID, "out/model.pt", "--to", "kept/best.pt").code == 0
    assert Path("kept/best.pt").read_bytes() == b"weights"
    assert cli("job", "download", JOB_ID, "out/model.pt", "--to", "run.1").code == 0
    assert Path("run.1/model.pt").read_bytes() == b"weights"


def test_files_are_listed(cli: RunCli, platform: FakePlatform) -> None:
    listed = {
        "files": [file_of("out/model.pt"), {**file_of("best"), "target": "out/model.pt"}],
        "checkpoint_id": None,
        "num_left_out": 2,
        "left_out": ["data/train.bin: it has more than 1,073,741,824 bytes"],
    }
    platform.on("GET", BASE, listed)
    ran = cli("job", "files", JOB_ID)
    assert "out/model.pt" in ran.out
    assert "best -> out/model.pt" in ran.out
    assert "2 files were not saved" in ran.err
    assert "data/train.bin" in ran.err


def test_one_file_is_downloaded_here(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, file_of("out/model.pt"), file_of("log"))
    ran = cli("job", "download", JOB_ID, "out/model.pt")
    assert ran.out == "model.pt\n", ran.err
    assert Path("model.pt").read_bytes() == b"weights"
    again = cli("job", "download", JOB_ID, "out/model.pt")
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert cli("job", "download", JOB_ID, "out/model.pt", "--overwrite").code == 0


def test_all_files_keep_their_places_modes_and_times(cli: RunCli, platform: FakePlatform) -> None:
    link = {**file_of("best"), "target": "out/model.pt", "sha256": None}
    serve(platform, link, file_of("out/model.pt"))
    assert cli("job", "download", JOB_ID).code == 0
    target = Path(JOB_ID, "out", "model.pt")
    assert (target.stat().st_mode & 0o777, target.stat().st_mtime) == (0o640, 1_577_836_800)
    assert Path(JOB_ID, "best").read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("num_files", "path", "num_requests"),
    [
        (100, "f", 1),
        (101, "f", 2),
        (41, "f" * 97, 2),
        (41, "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 16, 2),
    ],
)
def test_small_files_are_asked_for_together(
    cli: RunCli, platform: FakePlatform, num_files: int, path: str, num_requests: int
) -> None:
    contents = {f"{path}{n:03}": f"content {n}".encode() for n in range(num_files)}
    contents["large"] = b"x" * (MAX_PACKED_FILE_BYTES + 1)
    serve(platform, *(file_of(name, content) for name, content in contents.items()))
    answer = platform.respond

    def respond(request: httpx.Request) -> httpx.Response:
        asked = answer(request)
        if not request.url.path.endswith("/content"):
            return asked
        names = request.url.params.get_list("path")
        return httpx.Response(200, content=b"".join(contents[name] for name in names))

    platform.respond = respond  # type: ignore[method-assign]
    ran = cli("job", "download", JOB_ID)
    assert ran.code == 0, ran.err
    assert {one.name: one.read_bytes() for one in Path(JOB_ID).iterdir()} == contents
    asked = [one for one in platform.requests if one.url.path.endswith("/content")]
    assert len(asked) == num_requests + 1


def test_what_arrives_short_is_no_file(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, file_of("a", b"1234567"), file_of("b", b"weights"), content=b"1234567wei")
    assert cli("job", "download", JOB_ID).code != 0
    assert [one.name for one in Path(JOB_ID).iterdir()] == ["a"]


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil"])
def test_a_path_that_leads_out_is_refused(cli: RunCli, platform: FakePlatform, path: str) -> None:
    serve(platform, file_of(path))
    assert cli("job", "download", JOB_ID, "--to", "in").code == 2
    assert list(Path().rglob("evil")) == []


def test_nothing_is_written_through_a_link(cli: RunCli, platform: FakePlatform) -> None:
    os.makedirs("elsewhere")
    os.makedirs("in")
    os.symlink("../elsewhere", "in/out")
    serve(platform, file_of("out/model.pt"))
    assert cli("job", "download", JOB_ID, "--to", "in").code == 2
    assert os.listdir("elsewhere") == []


def test_a_link_that_leads_out_is_not_made(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, {**file_of("link"), "target": "../../secret"}, file_of("log"))
    assert cli("job", "download", JOB_ID, "--to", "in").code == 0
    assert os.listdir("in") == ["log"]


def test_no_chain_of_links_leads_out(cli: RunCli, platform: FakePlatform) -> None:
    Path("profile").write_text("mine")
    links = {"a/up": "..", "b/up": "../a/up", "out": "a/up/..", "out/profile": "in/log"}
    serve(platform, file_of("log"), *({**file_of(at), "target": to} for at, to in links.items()))
    assert cli("job", "download", JOB_ID, "--to", "in").code == 0
    assert Path("profile").read_text() == "mine"
    assert not Path("profile").is_symlink()
    assert Path("in/b/up/log").read_bytes() == b"weights"
    assert not os.path.lexists("in/out")


def test_damaged_content_is_not_kept(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform, file_of("model.pt"), content=b"other")
    ran = cli("job", "download", JOB_ID, "model.pt")
    assert (ran.code, "damaged" in ran.err) == (3, True)
    assert os.listdir() == []
