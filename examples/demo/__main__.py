"""`python -m examples.demo [--exit-when-done] [options of services.standalone]`.

Starts the platform, submits examples/01-digits with the command line, kills rank 1 at 40 % of the
steps, prints the recovery and a summary, and keeps running until Ctrl-C. With --exit-when-done it
exits with code 0 if the job succeeded, else 1; stopped before the summary, it exits with 130.
"""

import os
import sys

from examples.demo.story import run_demo
from services.standalone.options import BadOption, parse
from services.standalone.parts import Plan
from services.standalone.progress import Reporter
from services.standalone.up import show_address, up

EXIT_USAGE = 2
EXIT_WHEN_DONE = "--exit-when-done"


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != EXIT_WHEN_DONE]
    exits = len(arguments) < len(sys.argv) - 1
    try:
        options = parse(["up", *arguments], os.environ)
    except BadOption as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE

    async def on_up(plan: Plan, reporter: Reporter) -> int | None:
        await show_address(plan, reporter)
        code = await run_demo(plan, stays=not exits)
        return code if exits else None

    return up(options, on_up)


if __name__ == "__main__":
    sys.exit(main())
