"""The trials of a search that have not ended, by number, and how many of them hold devices."""

from collections import UserDict
from collections.abc import Mapping

from services.hpo.core.status import Open, Phase


class OpenTrials(UserDict[int, Open]):
    """What follows each change: `num_holding` and `num_waiting` for devices, and the `paused` ones,
    which do neither.
    """

    def __init__(self, known: Mapping[int, Open]) -> None:
        self.num_holding = 0
        self.num_waiting = 0
        self.paused: set[int] = set()
        super().__init__(known)

    def __setitem__(self, number: int, opened: Open) -> None:
        if number in self.data:
            self._count(self.data[number], -1)
        super().__setitem__(number, opened)
        self._count(opened, 1)
        if opened.phase is Phase.PAUSED:
            self.paused.add(number)
        else:
            self.paused.discard(number)

    def __delitem__(self, number: int) -> None:
        self._count(self.data[number], -1)
        super().__delitem__(number)
        self.paused.discard(number)

    def _count(self, opened: Open, change: int) -> None:
        if opened.holds_devices:
            self.num_holding += change if opened.phase is not Phase.PAUSED else 0
        elif opened.phase is Phase.RUNNING:
            self.num_waiting += change
