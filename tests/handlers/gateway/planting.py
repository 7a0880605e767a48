"""A tenant that has one of everything, with the same word in all that people name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drivetrain_schemas.annotations import JobAnnotated
from drivetrain_schemas.budgets import BudgetChanged, BudgetReached, BudgetSpec
from drivetrain_schemas.descriptions import RunDescribed
from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.job_files import FileList, JobFile, list_key
from drivetrain_schemas.jobs import JobFailed, JobRequestRejected, JobSubmit
from drivetrain_schemas.media import media_directory
from drivetrain_schemas.metrics import AlertRaised, RunWarned
from drivetrain_schemas.silences import SilenceChanged, SilenceSpec, silence_id_for
from tests.handlers.gateway.model import TENANT_HEADER, Server
from tests.handlers.gateway.searches import SearchStory
from tests.handlers.gateway.story import JobStory, Story, spec

CONTENT = b"content"


@dataclass(slots=True)
class Planted:
    """`job_ids`: the first one runs and has everything; `known`: what a walk may ask for."""

    tenant_id: str
    word: str
    job_ids: list[str]
    study_id: str
    known: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """What only this tenant has: ids, and its word."""
        own = {value for name in ("checkpoint_id", "parked_id") for value in self.known[name]}
        return [self.word, *self.job_ids, self.study_id, *sorted(own)]

    def is_asked_about(self, question: str) -> bool:
        """Whether it names the tenant, or a job or a study of it."""
        names = (f"/{self.tenant_id} ", *self.job_ids, self.study_id)
        return any(name in question for name in names)


async def plant(server: Server, tenant_id: str, word: str, node_id: str, **changes: Any) -> Planted:
    """`changes`: to the specs of its jobs, and to that of its study's job."""
    story = Story(tenant_id=tenant_id, node_id=node_id)
    named = {"tags": [word], "project": word, **changes}
    job = story.job(word, **named)
    planted = Planted(tenant_id, word, [job.job_id], study_id_for(tenant_id, f"{word}-study"))
    _runs(story, job, word)
    planted.job_ids += _others(story, word, named)
    _study(story, word, spec("trial", **named).model_dump(mode="json"))
    _money_and_silence(story, job, word)
    checkpoint_id = job.saves(100)
    story.tell(_alert(job, word))
    await server.model.tell(*story.events)
    await _store(server, job, word)
    sent = {"request_id": f"{word}-sent", "spec": spec(word, **named).model_dump(mode="json")}
    headers = {TENANT_HEADER: tenant_id}
    answer = await server.client.post("/v1/jobs", json=sent, headers=headers)
    assert answer.status_code == 202, answer.text
    planted.job_ids.append(answer.json()["job_id"])
    parked_ids = await _park(server, tenant_id, word)
    planted.known = {
        "job_id": planted.job_ids,
        "job": planted.job_ids,
        "study_id": [planted.study_id],
        "checkpoint_id": [checkpoint_id],
        "checkpoint": [checkpoint_id],
        "parked_id": parked_ids,
        "number": ["0"],
        "step": ["100"],
        "path": [f"dir/{word}"],
        "key": [word],
        "text": [word, *(f"{one[:20]}" for one in (job.job_id, planted.study_id, checkpoint_id))],
        "search": [word],
        **{name: [word] for name in ("name", "names", "tag", "project", "metric")},
    }
    return planted


def _runs(story: Story, job: JobStory, word: str) -> None:
    job.waits()
    job.starts()
    job.beats(0, 40, seconds=0)
    about = {**job.run, "tenant_id": story.tenant_id}
    del about["fence"]
    surroundings = {
        "python": "3.11",
        "platform": word,
        "entry_point": f"{word}.py",
        "arguments": [word],
        "packages": [{"name": word, "version": "1"}],
        "data": [{"uri": f"s3://{word}/data"}],
        "hyperparameters": {word: 1},
    }
    story.tell(RunDescribed(**about, number=1, surroundings=surroundings))
    story.tell(RunWarned(**about, number=1, warning="misuse", detail=f"about {word}"))
    story.tell(JobAnnotated(job_id=job.job_id, tags=(word,), note=f"note of {word}", project=word))


def _alert(job: JobStory, word: str) -> AlertRaised:
    about = {**job.run, "tenant_id": job.story.tenant_id}
    del about["fence"]
    return AlertRaised(**about, alert="not_finite", series=word, step=1, detail=f"{word} is nan")


def _others(story: Story, word: str, named: dict[str, Any]) -> list[str]:
    """Jobs that failed, that were refused, and that nobody has answered yet."""
    failed = story.job(f"{word}-failed", **named)
    failed.starts()
    failed.fails(f"ValueError: {word}", detail=f"{word} went wrong")
    story.tell(
        JobFailed(job_id=failed.job_id, attempts=1, detail=f"{word} gave up", finished_at=story.now)
    )
    job_ids = [failed.job_id]
    for name in ("refused", "asked"):
        request_id = f"{word}-{name}"
        job_id = job_id_for(story.tenant_id, request_id)
        submit = story.tell(
            JobSubmit(request_id=request_id, job_id=job_id, spec=spec(word, **named))
        )
        job_ids.append(job_id)
        if name == "refused":
            story.tell(
                JobRequestRejected(
                    job_id=job_id,
                    request_id=request_id,
                    command_event_id=submit.event_id,
                    reason="unsupported",
                    detail=f"{word} is not supported",
                )
            )
    return job_ids


def _study(story: Story, word: str, job: dict[str, Any]) -> None:
    study = SearchStory(story, f"{word}-study", job=job)
    for number in range(3):
        point = {"learning_rate": 0.1 / (number + 1), "width": 8 + number, "optimizer": "sgd"}
        study.proposes(number, point, why=f"{word} is drawn")
        study.judges(number, 10, 0.5 + number / 10, "continue", reason=f"{word} is kept")
    study.completes(0, 0.5)
    study.fails(1, f"{word} failed")


def _money_and_silence(story: Story, job: JobStory, word: str) -> None:
    budget = {"tenant_id": story.tenant_id, "name": word, "version": 1}
    limit = BudgetSpec(limit_micro_usd=5_000_000, project=word)
    story.tell(BudgetChanged(**budget, spec=limit, changed_at=story.now))
    story.tell(
        BudgetReached(
            **budget,
            percent=80,
            action="warn",
            spent_micro_usd=4_000_000,
            spec=limit,
            reached_at=story.now,
        )
    )
    for about in ({"project": word}, {"job_id": job.job_id, "alert": "stalled"}):
        silence = SilenceSpec(ends_at="2126-01-01T00:00:00Z", reason=f"{word} is known", **about)
        story.tell(
            SilenceChanged(
                tenant_id=story.tenant_id,
                silence_id=silence_id_for(story.tenant_id, silence),
                spec=silence,
                command_event_id=f"silence-{word}",
                created_at=story.now,
            )
        )


async def _store(server: Server, job: JobStory, word: str) -> None:
    """The bytes of a checkpoint, a file and a picture, in the object store."""
    about = {**job.run, "tenant_id": job.story.tenant_id}
    content = word.encode()
    digest = hashlib.sha256(content).hexdigest()
    shard = {"key": word, "size_bytes": len(content), "sha256": digest, "rank": 0}
    at = "2026-01-01T00:00:00Z"
    manifest = {**about, "step": 100, "world_size": 1, "shards": [shard], "written_at": at}
    keys = await server.model.rows(
        "select manifest_key from checkpoints where job_id = $1", job.job_id
    )
    directory = keys[0]["manifest_key"].rpartition("/")[0]
    await server.objects.put(keys[0]["manifest_key"], json.dumps(manifest).encode())
    await server.objects.put(f"{directory}/{word}", content)
    files = f"files/{job.story.tenant_id}/{job.job_id}"
    blob = f"{digest}-00000001"
    file = JobFile(
        path=f"dir/{word}",
        size_bytes=len(content),
        mode=0o640,
        modified_at_ns=0,
        sha256=digest,
        parts=(blob,),
    )
    listed = FileList(
        **about,
        files=(file,),
        summary={"num_files": 1, "size_bytes": 1, "num_left_out": 0, "left_out": []},
        saved_at=at,
    )
    text = listed.model_dump_json().encode()
    await server.objects.put(f"{files}/blobs/{blob}", content)
    await server.objects.put(f"{files}/{list_key(job.run['fence'], 1, 1)}", text)
    await server.objects.put(f"{directory}/files.json", text)
    await server.objects.put(f"{media_directory(about['tenant_id'], job.job_id)}/{digest}", content)


async def _park(server: Server, tenant_id: str, word: str) -> list[str]:
    """Open and discarded records that name the tenant, in either mode of CloudEvents."""
    park, headers = server.model.park, {TENANT_HEADER: tenant_id}
    named = (("ce_tenantid", tenant_id.encode()),)
    of_binary = await park(f'{{"spec": "{word}"'.encode(), word, headers=named)
    structured = {"specversion": "1.0", "tenantid": tenant_id, "data": {"spec": word}}
    content_type = (("content-type", b"application/cloudevents+json"),)
    of_structured = await park(json.dumps(structured).encode(), word, headers=content_type)
    answer = await server.client.post(
        f"/v1/parked/{of_structured}/discard",
        json={"note": f"{word} is noise"},
        headers=headers,
    )
    assert answer.status_code == 202, answer.text
    return [of_binary, of_structured]


def backend(planted: list[Planted], asked: list[str]) -> Any:
    """The read ports of the other services: they answer with the word of the tenant, or of the
    job's or study's tenant, that they are asked about. `asked`: what they were asked."""

    async def forward(part: str, path: str, parameters: Any) -> Any:
        question = f"{part}{path} {parameters}"
        asked.append(question)
        owner = next((one for one in planted if one.is_asked_about(question)), None)
        return _answer(path, owner, parameters or {})

    return forward


def _answer(path: str, owner: Planted | None, asked: Mapping[str, Any]) -> Any:
    word, job_id = owner.word if owner else "nobody", asked.get("job_id", "")
    curve = {"steps": 0, "from_step": 0, "values": [1], "lows": None, "highs": None}
    series = {"name": word, "num_samples": 1, "first_step": 0, "last_step": 0, "last_value": 1}
    line = {"position": 0, "attempt": 1, "rank": 0, "number": 0, "line": word}
    media = {"name": word, "media": "text"}
    kind = "held" if asked.get("by") in ("project", "job", "tenant") else "productive"
    share = {"pool": "default", "device_type": "cpu", "kind": kind, "name": word}
    amount = {"slot_microseconds": 1, "micro_usd": 1}
    day = "2026-11-21"
    charge = {**share, **amount, "day": day, "byte_microseconds": 0, "capacity": None}
    charge |= {"tenant_id": word, "project": word, "study_id": None, "job_id": word}
    advice = {"job_id": "", "job_name": word, "kind": "idle_slots", "saving_micro_usd": 1}
    item = {**media, "step": 100, "item": 0, "attempt": 1, "image_form": None, "caption": word}
    item |= {"sha256": hashlib.sha256(word.encode()).hexdigest(), "size_bytes": len(word)}
    item |= {"file_name": None, "logged_at": "2026-01-01T00:00:00Z"}
    answers: dict[str, Any] = {
        "samples": {"job_id": job_id, "series": {word: {"steps": [], "values": [],
            "num_samples": 0, "is_downsampled": False}}},
        "system": {"job_id": job_id, "ranks": [{"rank": 0, "series": [series]}], "next": None},
        "series": {"job_id": job_id, "series": [series], "next": None, "num_series": 1,
            "num_samples_left_out": 0},
        "chart": {"job_id": job_id, "width": 1, "is_whole": True, "next": "", "attempts": [],
            "steps": [[0]], "series": {word: {**curve, "not_finite": []}}},
        "times": {"job_id": job_id, "attempts": []},
        "windows": {"job_id": job_id, "window_seconds": 30, "windows": [{"starts_at": 0,
            "attempt": 1, "steps_per_second": 1, "slowest_share": None, "pods": {word: 1.0},
            "num_pods": 1, "utilisation_percent": None, "series": {}}]},
        "logs": {"job_id": job_id, "lines": [line], "next": 1, "num_lines": 1,
            "num_dropped_bytes": 0},
        "media": {"names": [{**media, "num_steps": 1, "first_step": 0, "last_step": 0}],
            "items": [item]},
        "budgets": {"budgets": []},
        "pools": {"shares": [{**share, "day": day, "tenant_id": word, "slot_seconds": 1,
            "micro_usd": 1}]},
        "fleet": {"step": "day", "starts_at": ["2026-11-21T00:00:00Z"], "pools": ["default"],
            "series": [{**share, "holder": word, "slot_microseconds": [1], "micro_usd": [1]}]},
        "recommendations": {"recommendations": [{**advice, "evidence": "", "advice": ""}]},
        "chargeback": [{**charge, "job_name": word}, {"is_complete": True}],
        "queue": {"reason": None, "detail": None, "queue_position": 1, "holders": None},
        "next": {},
        "spend": {"charged_micro_usd": 1, "accruing_micro_usd": 2, "total_micro_usd": 3,
            "unpriced": []},
    }  # fmt: skip
    return answers[path.split("/")[1]]
