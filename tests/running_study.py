"""One study on a platform: what it is, its trials, and the searching service's own rows of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx

from services.hpo import messages, saved, store
from services.hpo.core import inputs
from services.hpo.core.search import Search
from services.hpo.core.status import Status
from services.hpo.core.trials import Trial
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

FINAL = ("completed", "failed", "cancelled")


class RunningStudy:
    """A study, submitted through the gateway."""

    def __init__(self, platform: StandalonePlatform, study_id: str) -> None:
        self.platform = platform
        self.study_id = study_id
        self.path = f"/v1/studies/{study_id}"

    @classmethod
    def submit(cls, platform: StandalonePlatform, spec: dict[str, Any]) -> "RunningStudy":
        with platform.client() as client:
            answer = client.post("/v1/studies", json={"spec": spec})
        assert answer.status_code in (201, 202), answer.text
        return cls(platform, answer.json()["study_id"])

    def post(self, path: str, **body: Any) -> httpx.Response:
        with self.platform.client() as client:
            return client.post(f"{self.path}/{path}", json=body)

    def command(self, name: str, **body: Any) -> None:
        """`pause`, `resume`, `stop`, `change` or `cancel`, which has to be accepted."""
        answer = self.post(name, **body)
        assert answer.status_code in (200, 202), answer.text

    def state(self) -> dict[str, Any]:
        content: dict[str, Any] = self.platform.get(self.path)
        return content

    def trials(self) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = self.platform.get(f"{self.path}/trials")["trials"]
        return content

    def wait(self, *, seconds: float = 300.0) -> list[dict[str, Any]]:
        """The trials, once the study is complete."""

        def final() -> Any:
            study = self.state()
            return study if study["state"] in FINAL else None

        study = wait_until(final, f"{self.path} ends", seconds=seconds, every=0.5)
        assert study["state"] == "completed", study
        return self.trials()

    def job(self, trial: dict[str, Any]) -> TrainingJob:
        return TrainingJob(self.platform, trial["job_id"])

    def stored(self) -> "Stored":
        return asyncio.run(_stored(self.platform.admin["postgres_dsn"], self.study_id))


@dataclass(frozen=True, slots=True)
class Stored:
    """What the search service has of a study, and what its log of events gives when replayed."""

    trials: list[Trial]
    log: list[inputs.Input]
    status: Status
    replayed: Search


async def _stored(dsn: str, study_id: str) -> Stored:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("set search_path to hpo")
        study = await store.get_study(connection, study_id)
        asked = await store.asked(connection, study_id)
        rows = await store.load_trials(connection, study_id)
        log = [inputs.load(text) for text in await store.events_of(connection, study_id)]
    finally:
        await connection.close()
    assert study is not None
    assert asked is not None
    spec = messages.read_spec(asked.spec)
    replayed = Search(messages.to_plan(spec), Status(messages.to_numbers(spec)))
    for told in log:
        replayed.on(*told)
    trials, _ = saved.load_trials(rows)
    given = [told.given for told in log]
    return Stored(trials, given, saved.load_status(study), replayed)
