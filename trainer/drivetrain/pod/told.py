"""Which warnings and alerts of a program are passed on: each once, and a bounded number."""

from drivetrain.messages import Warned
from drivetrain.reporting import MAX_WARNINGS
from drivetrain_schemas.reports import ALERT

MAX_ALERTS = 10  # that the program raises itself


class Told:
    """All ranks may warn of the same."""

    def __init__(self) -> None:
        self._warnings: set[str] = set()
        self._alerts: set[str] = set()
        self.num_alerts_left_out = 0

    def is_new(self, message: Warned) -> bool:
        """Whether to pass it on; then it is not new again."""
        is_alert = message.warning == ALERT
        told, bound = (self._alerts, MAX_ALERTS) if is_alert else (self._warnings, MAX_WARNINGS)
        if message.detail in told:
            return False
        if len(told) < bound:
            told.add(message.detail)
            return True
        self.num_alerts_left_out += is_alert
        return False
