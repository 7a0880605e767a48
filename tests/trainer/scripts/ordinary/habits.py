"""What scripts do everywhere. Prints one JSON object; each habit is compared with plain python."""

import atexit
import faulthandler
import gc
import io
import json
import locale
import logging
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

SIGNALS = ("SIGTERM", "SIGINT", "SIGPIPE", "SIGCHLD", "SIGUSR1")


def square(number: int) -> int:
    return number * number


def from_a_worker(method: str) -> object:
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(square, [3])


def terminated_worker() -> int | None:
    worker = multiprocessing.Process(target=time.sleep, args=(600,))
    worker.start()
    worker.terminate()
    worker.join(60)
    return worker.exitcode


def logged() -> object:
    before = [type(handler).__name__ for handler in logging.root.handlers]
    stream = io.StringIO()
    logging.basicConfig(stream=stream, level=logging.INFO, format="%(name)s %(message)s")
    logging.getLogger("mine").info("said")
    return before, stream.getvalue()


def near_the_script() -> object:
    os.chdir("/")
    return os.path.isabs(__file__), Path(__file__).exists(), Path(__file__).name


def stated_module() -> object:
    main = sys.modules["__main__"]
    return (
        __name__,
        main.__package__,
        main.__spec__,
        type(main.__loader__).__name__,
        sorted(name for name in vars(main) if name.startswith("__")),
    )


def streams() -> object:
    return [
        (stream.name, stream.encoding, stream.errors, stream.write_through, stream.newlines)
        for stream in (sys.stdout, sys.stderr)
    ], type(sys.stdout.buffer).__name__


HABITS: dict[str, Callable[[], object]] = {
    "arguments": lambda: sys.argv,
    "first place of imports": lambda: os.path.samefile(sys.path[0], os.getcwd()),
    "the main module": stated_module,
    "logging.basicConfig": logged,
    "a forked worker": lambda: from_a_worker("fork"),
    "a spawned worker": lambda: from_a_worker("spawn"),
    "a worker of a forkserver": lambda: from_a_worker("forkserver"),
    "a terminated worker": terminated_worker,
    "standard streams": streams,
    "standard input": sys.stdin.read,
    "directory for temporary files": tempfile.gettempdir,
    "time zone": lambda: (time.tzname, time.localtime(0).tm_hour),
    "locale": lambda: (locale.getlocale(), locale.getpreferredencoding(False)),
    "python on the path": lambda: shutil.which("python"),
    "torchrun on the path": lambda: shutil.which("torchrun"),
    "drivetrain on the path": lambda: shutil.which("drivetrain"),
    "python in a shell": lambda: subprocess.check_output(
        ["sh", "-c", "python -c 'import sys; print(sys.executable)'"], text=True
    ),
    "signals": lambda: [str(signal.getsignal(getattr(signal, name))) for name in SIGNALS],
    "threads": lambda: (threading.active_count(), threading.current_thread().name),
    "a fault shows its frame": faulthandler.is_enabled,
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold()),
    "exception hook": lambda: sys.excepthook is sys.__excepthook__,
    "flags": lambda: str(sys.flags),
    "the script after chdir": near_the_script,
}


def observe(habit: Callable[[], object]) -> object:
    try:
        return habit()
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    seen = {name: observe(habit) for name, habit in HABITS.items()}
    seen["random"] = random.random()
    if "numpy" in os.environ.get("ALSO_RANDOM", ""):
        import numpy
        import torch

        seen["numpy"] = numpy.random.random()
        seen["torch"] = torch.rand(1).item()
    Path(os.environ["SEEN"] + os.environ.get("RANK", "")).write_text(json.dumps(seen))
    atexit.register(print, "at exit")
    threading.Timer(0.1, print, ["a thread"]).start()
    print("no new line", end="")
