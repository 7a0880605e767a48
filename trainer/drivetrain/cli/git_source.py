"""The state of the Git repository that a directory of code belongs to, as the `source` of a job.

In: a directory. Out: commit, branch, whether files are changed and not committed, and these changes
without files that may contain passwords. None outside of a repository and without Git.
"""

import subprocess
from pathlib import Path
from typing import Any

from drivetrain_schemas.specs import MAX_DIFF_CHARACTERS
from drivetrain_schemas.text import storable

LIMIT_SECONDS = 10.0
# What is changed, as text; no program that the repository's settings name is run.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")
# In memory; of a longer one the length is not known.
MAX_READ_BYTES = 16 * 1024 * 1024
# As in `ignoring`: the code is sent without them too.
_WITHOUT = tuple(
    f":(exclude,glob)**/{name}" for name in (".env", ".env.*", ".netrc", "*.pem", "*.key")
)


def source_of(directory: Path) -> dict[str, Any] | None:
    """The `source` of a spec."""
    commit = _git(directory, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    branch = _git(directory, "symbolic-ref", "--short", "-q", "HEAD")
    status = _git(directory, "status", "--porcelain", "--", ".")
    diff = _git(directory, "diff", "HEAD", *_PLAIN, "--", ".", *_WITHOUT)
    text = storable(diff or "")
    found: dict[str, Any] = {"commit": commit.strip(), "is_dirty": bool(status)}
    if branch:
        found["branch"] = storable(branch.strip())[:256]
    if text:
        found |= {"diff": text[:MAX_DIFF_CHARACTERS], "diff_characters": len(text)}
    return found


def _git(directory: Path, *arguments: str) -> str | None:
    """None where it failed: a job without this is submitted all the same."""
    try:
        done = subprocess.run(
            ("git", "-C", str(directory), "-c", "core.fsmonitor=false", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return done.stdout[:MAX_READ_BYTES].decode("utf-8", "replace")
