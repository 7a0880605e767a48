"""`python -m tests.integration.runtime.reader TOPIC...`: reads records and measures itself.

Prints, as JSON, the problem of each record and by how much the memory of the process grew. The
servers come from the environment; it ends after as many records as NUM_RECORDS says.
"""

import asyncio
import json
import os
import re
import secrets
import sys
from pathlib import Path

from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_source import KafkaSource


def memory_bytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def reset_peak() -> int:
    """The peak is counted from here; returns the memory in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


async def read(topics: list[str]) -> dict[str, object]:
    access = KafkaAccess(os.environ["BOOTSTRAP"], os.environ["USERNAME"], os.environ["PASSWORD"])
    group = f"reader-{secrets.token_hex(4)}"
    source = KafkaSource(access, group, topics, member=f"{group}.0", max_records=2000)
    await source.start()
    before = reset_peak()
    problems: list[str | None] = []
    while len(problems) < int(os.environ["NUM_RECORDS"]):
        for batch in (await source.poll(0.5)).values():
            problems += [record.problem for record in batch]
    growth = memory_bytes("VmHWM") - before
    await source.stop()
    return {"problems": problems, "growth_bytes": growth}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(sys.argv[1:]))))
