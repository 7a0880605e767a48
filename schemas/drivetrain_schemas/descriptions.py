"""What a program says of its surroundings, so that people can repeat and compare it.

No values of the environment are in it.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from drivetrain_schemas.base import Payload, Value, event
from drivetrain_schemas.ids import JobId, PodId, RunId, TenantId
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.topics import EVENTS_ALERTS, REPORTS
from drivetrain_schemas.units import Attempt, Fence, Ordinal

MAX_PACKAGES = 1500
MAX_ARGUMENTS = 64
MAX_DATA = 32
MAX_TEXT = 300
MAX_NAME = 100
MAX_HYPERPARAMETERS = 128

Text = Annotated[str, StringConstraints(max_length=MAX_TEXT), AS_PRINTED]

Name = Annotated[str, StringConstraints(max_length=MAX_NAME), AS_PRINTED]


class DataUsed(Value):
    """`checksum` begins with how it was made: `sha256:` of the content of a file, `listing:` of
    the names and sizes in a directory."""

    uri: Annotated[str, StringConstraints(max_length=1024), AS_PRINTED]
    version: Text | None = None
    checksum: Text | None = None


class Package(Value):
    """An installed distribution."""

    name: Name
    version: Annotated[str, StringConstraints(max_length=60), AS_PRINTED]


class Surroundings(Value):
    """`seed`: what decides the order of the data.

    `hyperparameters`: all that the script declares, with the values that the run uses.
    """

    python: Text
    platform: Text
    packages: Annotated[tuple[Package, ...], Field(max_length=MAX_PACKAGES)] = ()
    entry_point: Text
    arguments: Annotated[tuple[Text, ...], Field(max_length=MAX_ARGUMENTS)] = ()
    seed: Ordinal | None = None
    world_size: Annotated[int, Field(ge=1)] = 1
    device_type: Text | None = None
    device_name: Text | None = None
    data: Annotated[tuple[DataUsed, ...], Field(max_length=MAX_DATA)] = ()
    hyperparameters: Annotated[
        dict[Name, bool | int | float | Text], Field(max_length=MAX_HYPERPARAMETERS)
    ] = {}


class _Described(Payload):
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    # Counts from 1; a later one replaces those before. A program has one for each use of data.
    number: Annotated[int, Field(ge=1, le=MAX_DATA + 1)]
    surroundings: Surroundings


@event("pod.described", topic=REPORTS, producer="pod")
class PodDescribed(_Described):
    """What rank 0 of a run says of its surroundings."""

    fence: Fence
    pod_id: PodId


@event("run.described", topic=EVENTS_ALERTS, producer="metrics")
class RunDescribed(_Described):
    """The surroundings of a run, as its rank 0 has said last."""
