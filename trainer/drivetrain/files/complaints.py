"""What the log of a job says about files that are not saved."""

from drivetrain.files.scanning import NOT_REGULAR, LeftOut


class Complaints:
    """Says each reason once, and once that it is over: some of them come and go with each save."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._over: set[str] = set()

    def new(self, left_out: LeftOut) -> list[str]:
        """The lines for what one save left out."""
        # A pipe or a socket has no content to lose, so nothing is said about it.
        reasons = [reason for reason in left_out.counts if reason != NOT_REGULAR]
        over = sorted(self._said - self._over - set(reasons))
        lines = [f"files are saved again that were not because {reason}" for reason in over]
        for reason in reasons:
            if reason not in self._said:
                lines.append(_line(left_out, reason))
        self._said.update(reasons)
        self._over.update(over)
        return lines


def _line(left_out: LeftOut, reason: str) -> str:
    number = left_out.counts[reason]
    example = next((one for one in left_out.examples if one.endswith(f": {reason}")), "")
    path = example.removesuffix(f": {reason}")
    return f"{number:,} of the job's files not saved, such as {path}: {reason}"
