"""What a run of a benchmark found, with all that is needed to judge it later: `Result`.

It is kept as `benchmarks/results/<name>.json`. Reading refuses a file that lacks the commit, the
machine, the date or anything else.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from benchmarks.catalogue import ROOT, declared
from benchmarks.measured import digest

RESULTS = ROOT / "benchmarks" / "results"
# What a run writes itself is no change of the code.
_WRITTEN = (":!benchmarks/results", ":!docs/performance.md")


class _Recorded(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Row:
    """`ours` and `peer` with their unit, `target` in words, `met` or not.

    `ratio` is that of the target: mostly ours / peer. `remark` is of those who know better than the
    figure, such as that it is no longer true.
    """

    id: str
    what: str
    ours: str
    peer: str
    ratio: float | None
    target: str
    met: bool
    remark: str = ""


class Machine(_Recorded):
    cores: int
    memory_gib: int
    kernel: str
    cpu: str | None


class Result(_Recorded):
    """`digest`: of the content of the measured paths. `load`: the load average before the run."""

    benchmark: str
    date: date
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    is_dirty: bool
    is_quick: bool
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    machine: Machine
    versions: Mapping[str, str]
    load: float | None
    remark: str = ""
    rows: Annotated[Sequence[Row], Field(min_length=1)]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def result_path(name: str) -> Path:
    return RESULTS / f"{name}.json"


def read(name: str) -> Result | None:
    """The recorded result of this benchmark; None if there is none yet."""
    path = result_path(name)
    return Result.model_validate_json(path.read_text()) if path.exists() else None


def record(
    name: str,
    rows: Sequence[Row],
    packages: Sequence[str],
    *,
    is_quick: bool,
    load: float,
    remark: str = "",
) -> Result:
    """These rows, measured now, by this tree on this machine."""
    versions = {package: version(package) for package in packages}
    return Result(
        benchmark=name,
        date=datetime.now(UTC).date(),
        commit=_git("rev-parse", "HEAD"),
        is_dirty=bool(_git("status", "--porcelain", "--", ".", *_WRITTEN)),
        is_quick=is_quick,
        digest=digest(ROOT, declared(name).measures),
        machine=this_machine(),
        versions={"Python": platform.python_version(), **versions},
        load=round(load, 1),
        remark=remark,
        rows=rows,
    )


def this_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Machine(
        cores=os.cpu_count() or 1,
        memory_gib=round(memory),
        kernel=f"{platform.system()} {platform.release()}",
        cpu=_cpu(),
    )


def _cpu() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
