"""How checkpoints are named in an object store, and which of them are never deleted.

The key of a manifest is `checkpoints/<tenant>/<job>/f<fence>-s<step>-<8 hex>/manifest.json`. Names
of directories sort in the order of checkpoints: highest fence last, then highest step. The eight
digits differ from save to save, so no directory is written twice.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MANIFEST = "manifest.json"
MIN_NEWEST = 2
_NAME = re.compile(r"f(?P<fence>[0-9]{12})-s(?P<step>[0-9]{12})-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointOrder:
    """The position of a checkpoint among those of its job; `name` makes the order total."""

    fence: int
    step: int
    name: str


def job_directory(tenant_id: str, job_id: str) -> str:
    """Where all checkpoints of a job are, without a slash at the end."""
    return f"checkpoints/{tenant_id}/{job_id}"


def directory_name(fence: int, step: int, save_number: int, nonce: int) -> str:
    """`save_number` counts the saves of a session, `nonce` differs between sessions."""
    return f"f{fence:012d}-s{step:012d}-{save_number & 0xFFFF:04x}{nonce & 0xFFFF:04x}"


def parse_name(name: str) -> CheckpointOrder | None:
    """None if this is not the name of a checkpoint's directory."""
    matched = _NAME.fullmatch(name)
    return None if matched is None else _order_of(matched)


def find_name(text: str) -> CheckpointOrder | None:
    """The first name of a checkpoint's directory in a text."""
    matched = _NAME.search(text)
    return None if matched is None else _order_of(matched)


def never_deleted(good: Iterable[CheckpointOrder]) -> frozenset[CheckpointOrder]:
    """The good checkpoints that retention must not delete (docs/architecture.md, rule 9).

    The two newest; and of each earlier fence the two newest, until the newest fence has passed
    their step: a run that restarted at step 0 must not replace the progress of the one before.
    """
    order = sorted(good, reverse=True)
    kept = set(order[:MIN_NEWEST])
    if order:
        newest = order[0]  # of the highest fence, its highest step
        for fence in {one.fence for one in order} - {newest.fence}:
            of_fence = [one for one in order if one.fence == fence][:MIN_NEWEST]
            kept |= {one for one in of_fence if one.step >= newest.step}
    return frozenset(kept)


def _order_of(matched: re.Match[str]) -> CheckpointOrder:
    return CheckpointOrder(int(matched["fence"]), int(matched["step"]), matched[0])
