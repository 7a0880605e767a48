"""Run the tests of one core on each mutant of it, and say which mutants no test notices.

Modules and tests are imported once. Each mutant is a fork of that process in which the functions of
one module get their changed code. It runs the tests that call a changed function, fastest first,
until one fails.
"""

import gc
import os
import pickle
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType

import pytest

from tests.mutants.points import Mutant, compiled

_PASSED, _FAILED, _BROKEN = range(3)
# Of each test, in time of the CPU, which a busy machine does not use up. A mutant that needs more
# is killed: most of these loop for ever.
_LIMIT_S, _LIMIT_FACTOR = 5, 10
_MEMORY = 4 << 30
_Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """`out_of_time` is how many of the killed did not end."""

    killed: tuple[Mutant, ...]
    survived: tuple[Mutant, ...]
    out_of_time: int


def judge(root: Path, tests: Path, mutants: Sequence[Mutant], processes: int) -> Verdicts:
    """The verdicts on mutants of files below `root`. Raises if a test fails without a mutant."""
    with TemporaryDirectory() as directory:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
        judging = _Judging(root, mutants, processes, Path(directory) / "baseline")
        sockets = ["--disable-socket", "--allow-unix-socket"]
        options = ["-p", "no:randomly", "-p", "no:cacheprovider", "-s", "-qq"]
        if pytest.main([str(tests), *options, *sockets], plugins=[judging]) != pytest.ExitCode.OK:
            raise RuntimeError(f"{tests}: no tests, or one fails without a mutant")
    return judging.verdicts()


class _Judging:
    """A plugin of pytest that takes the place of the run, after the tests are collected."""

    def __init__(
        self, root: Path, mutants: Sequence[Mutant], processes: int, baseline: Path
    ) -> None:
        self._root = root
        self._mutants = mutants
        self._processes = processes
        self._baseline = baseline
        self._statuses: dict[Mutant, int] = {}

    def pytest_sessionstart(self) -> None:
        """The same examples each time; one that fails need not be made small."""
        from hypothesis import HealthCheck, Phase, settings  # pytest wants to import it first

        settings.register_profile(
            "mutants",
            max_examples=8,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        files = {str(self._root / mutant.file) for mutant in self._mutants}
        functions = _functions(files)
        os.waitpid(_fork(self._measure, session, files), 0)
        calls, seconds, failing = pickle.loads(self._baseline.read_bytes())
        # One that calls nothing of the core judges nothing: whether it passes is not of interest.
        judges = {session.items[each].nodeid for callers in calls.values() for each in callers}
        if broken := judges.intersection(failing):
            pytest.exit(f"fails without a mutant: {', '.join(sorted(broken))}")
        running: dict[int, Mutant] = {}
        for mutant in self._mutants:
            if len(running) == self._processes:
                self._wait(running)
            changed = _changed(*compiled(self._root, mutant))
            callers = set[int]().union(*(calls[place] for place in changed))
            chosen = sorted(callers, key=seconds.__getitem__)
            limits = [_LIMIT_S + _LIMIT_FACTOR * seconds[each] for each in chosen]
            process = _fork(_run, session, chosen, limits, changed, functions)
            running[process] = mutant
        while running:
            self._wait(running)
        return True

    def verdicts(self) -> Verdicts:
        survived = tuple(each for each in self._mutants if self._statuses[each] == _PASSED)
        killed = tuple(each for each in self._mutants if self._statuses[each] != _PASSED)
        out_of_time = sum(os.WIFSIGNALED(self._statuses[each]) for each in killed)
        return Verdicts(killed, survived, out_of_time)

    def _wait(self, running: dict[int, Mutant]) -> None:
        process, status = os.wait()
        mutant = running.pop(process)
        if os.WIFEXITED(status) and os.waitstatus_to_exitcode(status) == _BROKEN:
            pytest.exit(f"the tests could not be run on {mutant}")
        self._statuses[mutant] = status
        if status == _PASSED:
            print(f"  {mutant}", flush=True)

    def _measure(self, session: pytest.Session, files: set[str]) -> int:
        """Run all tests; write which of them call which function, and how long each takes."""
        calls: dict[_Place, set[int]] = defaultdict(set)
        seconds: list[float] = []
        failing: list[str] = []

        def trace(frame: FrameType, event: str, argument: object) -> None:
            if frame.f_code.co_filename in files:
                calls[_place(frame.f_code)].add(len(seconds))

        sys.settrace(trace)
        threading.settrace(trace)
        started = time.process_time()
        for item in _each(session, session.items):
            if session.testsfailed > len(failing):
                failing.append(item.nodeid)
            seconds.append(time.process_time() - started)
            started = time.process_time()
        sys.settrace(None)
        self._baseline.write_bytes(pickle.dumps((calls, seconds, failing)))
        return _PASSED


def _run(
    session: pytest.Session,
    chosen: Sequence[int],
    limits: Sequence[float],
    changed: dict[_Place, CodeType],
    functions: dict[_Place, list[FunctionType]],
) -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    for place, code in changed.items():
        for function in functions.get(place, ()):
            function.__code__ = code
    _limit(limits[0] if limits else _LIMIT_S)
    following = iter([*limits[1:], _LIMIT_S])
    for _ in _each(session, [session.items[each] for each in chosen]):
        if session.testsfailed:
            return _FAILED
        _limit(next(following))
    return _PASSED


def _limit(seconds: float) -> None:
    """For what comes now, of the CPU's time."""
    until = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


def _each(session: pytest.Session, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    for item, following in zip_longest(items, items[1:]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        yield item


def _fork(work: Callable[..., int], *arguments: object) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    status = _BROKEN
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        status = work(*arguments)
    except MemoryError:
        status = _FAILED
    finally:
        os._exit(status)


def _place(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(files: set[str]) -> dict[_Place, list[FunctionType]]:
    """The functions that exist, also those behind properties and decorators."""
    found: dict[_Place, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in files:
            found[_place(each.__code__)].append(each)
    return found


def _changed(original: CodeType, mutated: CodeType) -> dict[_Place, CodeType]:
    """The changed code of each function in which the change stands, also of those around it."""
    pairs = zip(_codes(original), _codes(mutated), strict=True)
    return {_place(old): new for old, new in pairs if old != new}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
