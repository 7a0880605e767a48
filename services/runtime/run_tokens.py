"""Run tokens: proof that a report comes from a pod of the run that it is about.

All pods share one Kafka account. So the scheduler signs (run, fence) with a key that only services
have, the pods of the run receive the signature and send it with each report (`runtoken`), and every
reader of `reports` ignores the others, which are counted. Without a key nothing is signed or
checked.
"""

import hmac
from typing import Any

from pydantic import SecretStr

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import run_id_for
from services.runtime.bus import Record
from services.runtime.instruments import FORGED_REPORTS
from services.runtime.processing import read_event

_CHARACTERS = 32


class RunTokens:
    def __init__(self, key: SecretStr | None) -> None:
        self._key = None if key is None else key.get_secret_value().encode()

    def of(self, run_id: str, fence: int) -> str | None:
        """The token of the run's pods."""
        if self._key is None:
            return None
        return hmac.digest(self._key, f"{run_id}\0{fence}".encode(), "sha256").hex()[:_CHARACTERS]

    def read(self, record: Record) -> Event[Payload] | None:
        """The event on `reports`; None where a pod sent it without the token of the run it names.

        Raises InvalidEvent.
        """
        event = read_event(record)
        if event.payload.kind.producer == "pod" and not self._is_signed(event):
            FORGED_REPORTS.labels(event.type).inc()
            return None
        return event

    def _is_signed(self, event: Event[Any]) -> bool:
        report = event.payload
        token = self.of(report.run_id, report.fence)
        if token is None:
            return True
        is_of_run = hmac.compare_digest(token.encode(), (event.run_token or "").encode())
        return is_of_run and report.run_id == run_id_for(report.job_id, report.attempt)
