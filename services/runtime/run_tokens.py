"""Run tokens: proof that a record comes from a pod of the run that it is about.

All pods share one Kafka account. So the scheduler signs (run, fence) with a key that only services
have, the pods of the run receive the signature and send it with each record (`runtoken`), and every
reader of `reports`, `metrics` and `logs` ignores the others, which are counted. Without a key
nothing is signed or checked.
"""

import hmac
from typing import Any

from pydantic import SecretStr

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import run_id_for
from services.runtime.bus import Record
from services.runtime.instruments import FORGED
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
            FORGED.labels(event.type).inc()
            return None
        return event

    def is_of_run(
        self, run_id: str, fence: int, job_id: str, attempt: int, run_token: str | None
    ) -> bool:
        """Whether the sender has the token of this run, and the run is this attempt of the job."""
        token = self.of(run_id, fence)
        if token is None:
            return True
        is_signed = hmac.compare_digest(token.encode(), (run_token or "").encode())
        return is_signed and run_id == run_id_for(job_id, attempt)

    def is_of_later_run(
        self, run_id: str, job_id: str, attempt: int, later: tuple[int, int], run_token: str | None
    ) -> bool:
        """Whether the sender has the token of the `later` run (attempt, fence) of the same job.

        A run that resumes sends what earlier ones left in the checkpoint, under their names.
        """
        later_attempt, fence = later
        is_earlier = attempt < later_attempt and run_id == run_id_for(job_id, attempt)
        sender = run_id_for(job_id, later_attempt)
        return is_earlier and self.is_of_run(sender, fence, job_id, later_attempt, run_token)

    def _is_signed(self, event: Event[Any]) -> bool:
        report = event.payload
        return self.is_of_run(
            report.run_id, report.fence, report.job_id, report.attempt, event.run_token
        )
