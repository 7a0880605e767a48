"""`python -m services.metrics.windows`: folds live windows until a signal, or until its input ends.

The metrics service starts it with a pipe as its input, which ends with that process. While it
starts it ends at once; otherwise in `STOP_SECONDS` at most. Exit codes: 0 stopped, 1 failed,
2 an invalid setting, 70 no progress.
"""

import asyncio
import os
import signal
import sys

from services.metrics.settings import MetricsSettings
from services.metrics.windows.app import build
from services.metrics.windows.progress import watch
from services.runtime import logs
from services.runtime.errors import ConfigurationError
from services.runtime.service import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_STUCK
from services.runtime.settings import from_process
from services.runtime.watchdog import Stuck

log = logs.get()

STOP_SECONDS = 10.0


async def run(settings: MetricsSettings) -> int:
    """Returns the exit code."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if not sys.stdin.isatty():
        loop.add_reader(sys.stdin, _stop_at_end_of_input, stopping)
    app, folder = build(settings)
    stopped = asyncio.create_task(stopping.wait())
    starting = asyncio.create_task(app.start())  # without an answer of Kafka it takes for ever
    await asyncio.wait({stopped, starting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("windows process stopped before it had started")
        return 0
    starting.result()
    log.info("windows process started")
    ended = asyncio.create_task(app.wait_until_stopped())
    watched = asyncio.create_task(watch(app, folder))
    await asyncio.wait({stopped, ended, watched}, return_when=asyncio.FIRST_COMPLETED)
    if watched.done() and isinstance(watched.exception(), Stuck):
        log.error("windows process is stuck", error=str(watched.exception()))
        return EXIT_STUCK
    if not stopped.done():
        log.error("windows process failed", error=repr(app.crash_reason))
        return EXIT_FAILED
    _, late = await asyncio.wait({asyncio.create_task(app.stop())}, timeout=STOP_SECONDS)
    log.info("windows process stopped", is_complete=not late)
    return 0


def _stop_at_end_of_input(stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin)  # it would be called again without end
        stopping.set()


async def _run_and_exit(settings: MetricsSettings) -> None:
    """What is not acknowledged is read again by the next process; nothing here waits for it."""
    code = await run(settings)
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    try:
        settings = from_process(MetricsSettings)
        logs.configure("metrics.windows", settings.log_level)
        asyncio.run(_run_and_exit(settings))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_CONFIGURATION)


main()
