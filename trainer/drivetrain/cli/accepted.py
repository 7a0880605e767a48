"""What a verb prints whose request was accepted: done, or not confirmed yet."""

from drivetrain.cli.output import Format, Item, write_line, write_value
from drivetrain.cli.session import UNCONFIRMED


def write_accepted(answer: Item, subject: str, done: str, output: Format) -> None:
    """'job_... is being cancelled', or the answer itself for programs."""
    if output is Format.TABLE:
        is_confirmed = answer["is_confirmed"]
        write_line(f"{subject} {done}" if is_confirmed else f"{subject}: {UNCONFIRMED}")
    else:
        write_value(answer, output)
