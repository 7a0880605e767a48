"""`make mutants`: how many mutants of each core do its own unit tests kill?"""

import argparse
import json
import os
import random
import subprocess
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.recording import this_machine
from tests.mutants.judging import Verdicts, judge
from tests.mutants.points import Mutant, equivalents, mutants

ROOT = Path(__file__).parents[2]
CORES = ("scheduler", "hpo", "checkpoints", "metrics", "cost", "gateway", "standalone")
EQUIVALENTS = Path(__file__).parent / "equivalents.toml"
RESULTS = Path(__file__).parent / "recorded.json"
TARGET = 0.9


def main() -> None:
    given = _arguments()
    declared = equivalents(EQUIVALENTS)
    everything = {core: _mutants(core) for core in CORES}
    stale = declared.keys() - {each.key for found in everything.values() for each in found}
    if stale:
        raise SystemExit(f"equivalents.toml names mutants that do not exist: {sorted(stale)}")
    differing = {
        core: [each for each in found if each.key not in declared and given.only in each.file]
        for core, found in everything.items()
        if any(given.only in each.file for each in found)
    }
    sampled = sample(differing, given.sample, given.seed)
    print("Changes that no test notices:")
    # A new process per core: pytest runs once per process.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        processes = os.cpu_count() or 1
        pending = {
            core: pool.submit(judge, ROOT, ROOT / "tests" / "unit" / core, chosen, processes)
            for core, chosen in sampled.items()
        }
        judged = {
            core: {"mutants": len(everything[core])}
            | {"equivalent": sum(each.key in declared for each in everything[core])}
            | _shown(verdicts.result())
            for core, verdicts in pending.items()
        }
    _publish(judged, given.seed, given.json)


def sample(found: dict[str, list[Mutant]], number: int, seed: int) -> dict[str, list[Mutant]]:
    """Equally many of each core, as far as it has them: a small core is judged like a large one."""
    chosen: dict[str, list[Mutant]] = {}
    left = number
    for place, core in enumerate(sorted(found, key=lambda core: len(found[core]))):
        size = min(len(found[core]), left // (len(found) - place))
        chosen[core] = random.Random(f"{seed} {core}").sample(found[core], size)
        left -= size
    return {core: chosen[core] for core in found}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another seed takes another sample")
    parser.add_argument("--sample", type=int, default=200, help="mutants, equally many per core")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--json", type=Path, help=f"write the result there ({RESULTS.name})")
    return parser.parse_args()


def _mutants(core: str) -> list[Mutant]:
    files = sorted((ROOT / "services" / core / "core").rglob("*.py"))
    return [each for file in files for each in mutants(ROOT, str(file.relative_to(ROOT)))]


def _shown(verdicts: Verdicts) -> dict[str, Any]:
    return {
        "sampled": len(verdicts.killed) + len(verdicts.survived),
        "killed": len(verdicts.killed),
        "killed_out_of_time": verdicts.out_of_time,
        "survivors": sorted(map(str, verdicts.survived)),
    }


def _publish(judged: dict[str, Any], seed: int, json_path: Path | None) -> None:
    for core, found in judged.items():
        print(f"{core}: {found['killed']} of {found['sampled']} killed")
    sampled = sum(found["sampled"] for found in judged.values())
    killed = sum(found["killed"] for found in judged.values())
    print(f"\n{killed} of {sampled} killed, {killed / sampled:.1%} (target {TARGET:.0%})")
    if json_path is not None:
        result = {
            "seed": seed,
            "commit": _git("rev-parse", "HEAD"),
            "is_dirty": bool(_git("status", "--porcelain", "--", ".", ":!benchmarks/results")),
            "machine": this_machine().model_dump(),
            "date": datetime.now(UTC).date().isoformat(),
            "target": TARGET,
            "sampled": sampled,
            "killed": killed,
            "cores": judged,
        }
        json_path.parent.mkdir(exist_ok=True)
        json_path.write_text(json.dumps(result, indent=2) + "\n")


def _git(*command: str) -> str:
    return subprocess.check_output(["git", *command], cwd=ROOT, text=True).strip()


if __name__ == "__main__":
    main()
