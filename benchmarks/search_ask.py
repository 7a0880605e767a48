"""How long the next point takes at 1,000 trials: `auto` against Optuna's TPE, both in memory.

Both search the same space of 7 parameters with 8 parallel trials on the LCBench surrogate. A trial
is asked for when one ends; each ask from the 901st to the 1,100th is timed, ours and the peer's in
turn. Ours includes what it takes to learn from the trial that ended.
"""

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # before numpy is loaded

import random
import time

import numpy as np

from benchmarks.lcbench import surrogate
from benchmarks.report import Row, options, publish
from benchmarks.search_peers import OptunaSearcher
from benchmarks.search_simulation import NUM_WORKERS, Ours, Searcher

TITLE = "The next point of a long search"
MEASURES = ("services/hpo/core",)
NOTES = """
The proposal alone, in memory, of seven parameters with eight trials at a time; what it takes to
learn from the trial that ended is in it. Asking in turn with the peer leaves nothing of ours in
the processor's caches, which is a part of the time.
"""

FIRST, LAST = 900, 1100
TARGET_MS = 2.0


class Asked:
    """A search of which each ask is timed, in ms: `took` in wall time, `worked` in CPU time."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._running: list[tuple[object, float]] = []
        self._order = random.Random(0)
        self.took: list[float] = []
        self.worked: list[float] = []

    def step(self) -> None:
        before, worked = time.perf_counter(), time.thread_time()
        key, point = self._searcher.ask()
        self.worked.append((time.thread_time() - worked) * 1e3)
        self.took.append((time.perf_counter() - before) * 1e3)
        accuracies, _ = surrogate().curve(surrogate().tasks[0], point)
        self._running.append((key, float(accuracies[-1])))
        if len(self._running) == NUM_WORKERS:
            self._searcher.tell(*self._running.pop(self._order.randrange(NUM_WORKERS)))


def main() -> None:
    chosen = options("search_ask", __doc__ or "")
    ours, peer = Asked(Ours("auto", 0)), Asked(OptunaSearcher("TPE", 0))
    first, last = (60, 100) if chosen.quick else (FIRST, LAST)
    for _ in range(last):
        ours.step()
        peer.step()
    mine, theirs = ours.took[first:], peer.took[first:]
    p99 = float(np.quantile(mine, 0.99))
    for name, asked in (("auto", ours), ("Optuna TPE", peer)):
        for which, took in (("wall", asked.took[first:]), ("CPU", asked.worked[first:])):
            p50, p90, highest = np.quantile(took, [0.5, 0.9, 0.99])
            print(f"{name}, {which} time: p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {highest:.2f} ms")
    publish(
        [
            Row(
                id="search_ask.memory",
                what=f"p99 of an ask at {(first + last) // 2:,} trials, in memory",
                ours=f"{p99:.2f} ms",
                peer=f"{np.quantile(theirs, 0.99):.2f} ms (Optuna TPE)",
                ratio=p99 / float(np.quantile(theirs, 0.99)),
                target=f"at most {TARGET_MS:.0f} ms",
                met=p99 <= TARGET_MS,
            )
        ],
        chosen,
        ("optuna", "numpy", "scipy"),
    )


if __name__ == "__main__":
    main()
