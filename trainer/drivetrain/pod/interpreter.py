"""A new interpreter's work, done in a process that was forked from the warm template.

`python script.py`, `python DIRECTORY` and `python -m module` run here as they would in a new
interpreter, without its imports. What the template and the shim leave in the process is reset:
logging, random numbers, cached directories, multiprocessing's view of the parent. The same tests
run on this, on a cold pod and on plain `python` (tests/trainer/test_ordinary_place.py).
"""

import atexit
import faulthandler
import io
import logging
import os
import runpy
import signal
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from drivetrain import seeding, started

# Variables that the interpreter, the loader or a preloaded library reads when it starts.
_READ_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "NPY_"),
    *("TORCH", "PYTORCH_", "ATEN_"),
)


def runs_in_process(command: Sequence[str], variables: Mapping[str, str], directory: Path) -> bool:
    """Whether a warm process can replace a new interpreter for a command in this directory.

    `variables` are those of the job. Options of the interpreter, variables that are read when it
    starts, and a script that does not exist require a new one.
    """
    if command[0] not in ("python", "python3") or len(command) < 2:
        return False
    if any(name.startswith(_READ_AT_START) for name in variables):
        return False
    if command[1] == "-m":
        return len(command) > 2
    path = directory / command[1]
    is_script = path.suffix == ".py" and path.is_file()
    return not command[1].startswith("-") and (is_script or path.is_dir())


def run_python(arguments: Sequence[str]) -> int:
    """Do what the interpreter would do with these arguments. Returns the exit code."""
    _forget_the_shim()
    seeding.renew()  # the template's would be the same in each rank of each job
    started.remember()
    code = 0
    try:
        _run_main(arguments)
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException as error:
        error.__traceback__ = _below_this_file(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _forget_the_shim() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in every Python process
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = _unbuffered(descriptor, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable()
    time.tzset()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process().authkey = os.urandom(32)


def _unbuffered(descriptor: int, stream: TextIO) -> TextIO:
    """As PYTHONUNBUFFERED makes it: nothing is lost when the process is killed."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    raw.name = stream.name
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, newline="\n", write_through=True)


def _run_main(arguments: Sequence[str]) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = main
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    sys.argv = list(arguments)
    if os.path.isdir(arguments[0]):
        sys.path[0] = arguments[0]
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    path = os.path.abspath(arguments[0])
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    vars(main).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    source = Path(path).read_bytes()
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))  # noqa: S102 - the job's own


def _below_this_file(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
