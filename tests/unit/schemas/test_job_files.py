"""Lists of files and manifests that a program of a job may have written."""

import pytest
from pydantic import ValidationError

from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.job_files import FileList, JobFile


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (FileList, "files"),
        (FileList, "links"),
        (FileList, "removed"),
        (JobFile, "parts"),
        (Manifest, "shards"),
    ],
)
def test_reading_ends_at_the_first_flaw_of_a_list(kind: type[FileList], field: str) -> None:
    """Each flaw takes a kilobyte of memory for the two bytes of `0,`."""
    with pytest.raises(ValidationError) as found:
        kind.model_validate({field: [0] * 100})
    assert sum(error["loc"][0] == field for error in found.value.errors()) < 3
