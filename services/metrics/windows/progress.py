"""The watchdog of the windows process: a Faust consumer may stop without an error (faust 175, 596).

Progress is measured by what was folded, not by what was fetched, as of every consumer
(`services.runtime.watchdog`).
"""

import asyncio
import time
from typing import Any

from services.metrics.windows.app import Folder
from services.runtime.bus import Partition
from services.runtime.watchdog import STUCK_SECONDS, Standstill, Stuck

CHECK_SECONDS = 10.0


async def watch(app: Any, folder: Folder, stuck_seconds: float = STUCK_SECONDS) -> None:
    """Raises Stuck when there are records and none is folded, or no partition is assigned."""
    standstill = Standstill(time.monotonic())
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        consumer = app.consumer
        ends = {
            Partition(tp.topic, tp.partition): consumer.highwater(tp) or 0
            for tp in consumer.assignment()
            if tp.topic in folder.topics
        }
        # What another replica reads now may come back with a later position.
        for item in folder.positions.keys() - ends.keys():
            del folder.positions[item]
        positions = {item: folder.positions.get(item, end) for item, end in ends.items()}
        still = standstill.observe(positions, ends, time.monotonic())
        if still.everywhere > stuck_seconds:
            raise Stuck(f"windows have made no progress for {still.everywhere:.0f} s")
