"""Which lists of files are kept, and which stored content no list names."""

from datetime import UTC, datetime

import pytest

from drivetrain_schemas.job_files import FileList, FilesSummary
from services.checkpoints.core.files import is_kept, unnamed


@pytest.mark.parametrize(
    ("is_newest", "is_resumable", "want"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, False)],
)
def test_the_newest_list_and_those_that_a_run_may_start_with_are_kept(
    is_newest: bool, is_resumable: bool, want: bool
) -> None:
    files = FileList(
        tenant_id="default",
        job_id="job_" + "a" * 26,
        run_id="run_" + "a" * 26 + "_1",
        attempt=1,
        fence=1,
        is_resumable=is_resumable,
        summary=FilesSummary(num_files=0, size_bytes=0),
        saved_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert is_kept(files, is_newest=is_newest) is want


def test_only_blobs_that_no_list_names_are_unnamed() -> None:
    keys = ("blobs/aa", "blobs/bb", "lists/cc.json", "blobs/dd")
    assert unnamed(keys, {"aa"}) == ("blobs/bb", "blobs/dd")
