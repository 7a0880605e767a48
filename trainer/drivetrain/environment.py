"""A rank's view of its run, from the platform's environment variables or for a local run.

`read` is pure: variables in, `Environment` out. Inside a pod the shim sets everything. Under
torchrun or on its own only the ranks are known, and the run is a local run in `./runs`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from drivetrain import started
from drivetrain_schemas.ids import DEFAULT_TENANT, job_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec

JOB_DIRECTORY = "DRIVETRAIN_JOB_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Environment:
    """One rank of a run, and where its checkpoints, result and samples go.

    `directory` holds `result.json`; `store_url` is the root that manifest keys are relative to.
    `job_directory` is where the program was started: in a pod the job's own directory.
    """

    tenant_id: str
    job_id: str
    run_id: str
    attempt: int
    fence: int
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    init_method: str = "env://"
    job: JobSpec | None = None
    directory: Path = Path()
    job_directory: Path = Path()
    checkpoint_url: str = ""
    store_url: str = ""
    store_endpoint_url: str | None = None
    store_id: str | None = None
    control_socket: str | None = None
    device_type: str | None = None

    @property
    def is_local(self) -> bool:
        return self.job is None

    @property
    def judged_metric(self) -> str | None:
        """The metric whose best steps are saved; None: no step is saved for its value."""
        job = self.job
        return job.metric.name if job and job.metric and job.checkpoint.keep_best else None

    @property
    def manifest_prefix(self) -> str:
        """The prefix of a checkpoint's own key in the object store."""
        root = self.store_url.rstrip("/") + "/"
        return self.checkpoint_url.removeprefix(root).strip("/") + "/"


def read(variables: Mapping[str, str]) -> Environment:
    """The environment of a rank in a pod, or of a local run without its directory."""
    ranks = Environment(
        tenant_id=DEFAULT_TENANT,
        job_id=(job_id := job_id_for(DEFAULT_TENANT, "local")),
        run_id=run_id_for(job_id, 1),
        attempt=1,
        fence=1,
        rank=int(variables.get("RANK", "0")),
        world_size=int(variables.get("WORLD_SIZE", "1")),
        local_rank=int(variables.get("LOCAL_RANK", "0")),
        job_directory=started.directory() / variables.get(JOB_DIRECTORY, ""),
    )
    if "DRIVETRAIN_RUN_ID" not in variables:
        return ranks
    return replace(
        ranks,
        tenant_id=variables["DRIVETRAIN_TENANT_ID"],
        job_id=variables["DRIVETRAIN_JOB_ID"],
        run_id=variables["DRIVETRAIN_RUN_ID"],
        attempt=int(variables["DRIVETRAIN_ATTEMPT"]),
        fence=int(variables["DRIVETRAIN_FENCE"]),
        init_method=variables.get("DRIVETRAIN_INIT_METHOD", "env://"),
        # The platform may be newer than the package in the job's image.
        job=JobSpec.model_validate_json(variables["DRIVETRAIN_JOB_SPEC"], extra="ignore"),
        directory=Path(variables["DRIVETRAIN_POD_DIRECTORY"]),
        checkpoint_url=variables["DRIVETRAIN_CHECKPOINT_URL"],
        store_url=variables["DRIVETRAIN_OBJECT_STORE_URL"],
        store_endpoint_url=variables.get("DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL"),
        store_id=variables.get("DRIVETRAIN_OBJECT_STORE_ID"),
        control_socket=variables.get("DRIVETRAIN_CONTROL_SOCKET"),
        device_type=variables.get("DRIVETRAIN_DEVICE_TYPE"),
    )


def in_directory(environment: Environment, directory: Path, attempt: int) -> Environment:
    """A local run in its directory, as the given attempt at it."""
    job_id = job_id_for(DEFAULT_TENANT, os.fspath(directory))
    url = directory.as_uri()
    return replace(
        environment,
        job_id=job_id,
        run_id=run_id_for(job_id, attempt),
        attempt=attempt,
        fence=attempt,
        directory=directory,
        checkpoint_url=f"{url}/checkpoints",
        store_url=url,
    )
