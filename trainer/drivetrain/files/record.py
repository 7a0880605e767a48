"""What was laid out in the working directory at the start of an attempt, kept in a file.

The rank that saves and the shim both start from it: a file that is as it was laid out need not be
read, copied or uploaded again.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.files.scanning import Signature
from drivetrain.results import write_atomically
from drivetrain_schemas.job_files import JobFile


@dataclass(frozen=True, slots=True)
class Record:
    """`source`: the checkpoint or list whose files were put back; None for the code alone.

    `code` and `code_links` are as laid out; `restored` are the files that were put back,
    `lost` those that could not be, each with the reason.
    """

    source: str | None = None
    code: dict[str, Signature] = field(default_factory=dict)
    code_links: dict[str, str] = field(default_factory=dict)
    restored: dict[str, tuple[Signature, JobFile]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


def write_record(path: Path, record: Record) -> None:
    content = {
        "source": record.source,
        "code": record.code,
        "code_links": record.code_links,
        "restored": [
            [signature, file.model_dump(mode="json")]
            for signature, file in record.restored.values()
        ],
        "lost": record.lost,
    }
    write_atomically(path, json.dumps(content))


def read_record(path: Path) -> Record:
    """Raises OSError or ValueError."""
    content = json.loads(path.read_text())
    restored = [
        (_signature(signature), JobFile.model_validate(file))
        for signature, file in content["restored"]
    ]
    return Record(
        source=content["source"],
        code={name: _signature(signature) for name, signature in content["code"].items()},
        code_links=content["code_links"],
        restored={file.path: (signature, file) for signature, file in restored},
        lost=content["lost"],
    )


def _signature(numbers: list[int]) -> Signature:
    size, modified_at, changed_at, inode = numbers
    return (size, modified_at, changed_at, inode)
