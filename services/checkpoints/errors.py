"""Why an intent is not carried out now."""


class Postponed(Exception):
    """Something that this waits for has not arrived yet.

    `is_counted`: it may never arrive, so the intent is dropped after a number of tries.
    """

    def __init__(self, reason: str, *, is_counted: bool = True) -> None:
        super().__init__(reason)
        self.is_counted = is_counted
