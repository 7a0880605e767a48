"""What the log of a job says about files that are not saved."""

from collections import Counter

from drivetrain.files.scanning import NOT_REGULAR, LeftOut


def new_complaints(left_out: LeftOut, said: Counter[str]) -> list[str]:
    """A line for each reason that `said` does not hold; it is added there.

    A pipe or a socket has no content to lose, so nothing is said about it.
    """
    lines = []
    for reason, number in left_out.counts.items():
        if reason not in said and reason != NOT_REGULAR:
            example = next((one for one in left_out.examples if one.endswith(f": {reason}")), "")
            path = example.removesuffix(f": {reason}")
            lines.append(f"{number:,} of the job's files not saved, such as {path}: {reason}")
    said.update(left_out.counts)
    return lines
