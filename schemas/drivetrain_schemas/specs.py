"""Specs: how people and other systems describe a job. Immutable once accepted.

Every rule that can be checked without knowing the nodes is checked here, so the command line, the
gateway and the scheduler refuse the same requests with the same messages. `errors.field_errors`
turns a refusal into fields, messages and fixes.
"""

import math
import re
import shlex
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.ids import JobId, StudyId
from drivetrain_schemas.text import UNSTORABLE, form, free_text
from drivetrain_schemas.units import MAX_DEVICES

# What the platform accepts of a job: a rank gets its spec in one environment variable, and Linux
# takes 128 KiB for one.
MAX_SPEC_BYTES = 96 * 1024
SPEC_BYTES_FIX = f"write at most {MAX_SPEC_BYTES}; put long texts into a file of the code"
# The limit in events: some that were written before the limit above are larger.
MAX_READABLE_SPEC_BYTES = 128 * 1024
MAX_COMMAND_CHARACTERS = 64 * 1024
MAX_SCALAR_INTEGER = 2**53  # the largest exact integer in every language's JSON reader
MAX_SCALAR_CHARACTERS = 1024

Name = Annotated[
    str,
    form(
        "[A-Za-z0-9][A-Za-z0-9 ._-]*",
        "letters, digits, spaces and ._- with a letter or digit in front",
        max_length=63,
    ),
]
VariableName = Annotated[
    str,
    form("[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _ with no digit in front", max_length=128),
]
Tag = Annotated[
    str,
    form(
        "[A-Za-z0-9][A-Za-z0-9._:/-]*",
        "letters, digits and ._:/- with a letter or digit in front",
        max_length=63,
    ),
]
# The number of series in a result or a checkpoint; an event has at most 256 KiB.
MAX_LAST_VALUES = 256
MAX_METRIC_NAME_CHARACTERS = 128
# Anything printable on one line, such as "mAP@0.5" or "val loss". Refused are control characters,
# and those that change the direction of text and so could make one name look like another.
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_PRINTABLE = rf"[^{_UNPRINTABLE}\x20\xa0]([^{_UNPRINTABLE}]*[^{_UNPRINTABLE}\x20\xa0])?"
METRIC_NAME_WORDS = "printable characters, with no space at either end"
# Nothing is seen of these, so two names that look the same would be two series. Joiners, which are
# seen in some scripts and in emoji, are not among them.
_INVISIBLE = re.compile(
    "[\xad\u061c\u180e\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
MetricName = Annotated[
    str,
    form(
        _PRINTABLE,
        METRIC_NAME_WORDS,
        max_length=MAX_METRIC_NAME_CHARACTERS,
    ),
]
METRIC_NAME = re.compile(_PRINTABLE)


def is_metric_name(name: object) -> bool:
    """True for a name that a program may give: `MetricName` without invisible characters."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_METRIC_NAME_CHARACTERS
        and METRIC_NAME.fullmatch(name) is not None
        and UNSTORABLE.search(name) is None
        and _INVISIBLE.search(name) is None
    )


LastValues = Annotated[dict[MetricName, float], Field(max_length=MAX_LAST_VALUES)]
PoolName = Annotated[
    str, form("[a-z0-9][a-z0-9-]*", "small letters, digits and -, no - in front", max_length=63)
]
DeviceType = Annotated[
    str,
    form("[a-z0-9][a-z0-9.-]*", "small letters, digits, dots and -, such as h200", max_length=63),
]
Count = Annotated[int, Field(strict=True)]
Real = Annotated[float, Field(strict=True)]


def _is_scalar(value: Any) -> Any:
    # By hand, because pydantic reports four errors for one bad value of a union of four types.
    fix = "write a string, a number, true or false"
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit("is not a finite number", fix="write a finite number")
    if isinstance(value, int) and not abs(value) <= MAX_SCALAR_INTEGER:
        raise Misfit("is too large for a whole number", fix="write at most 2**53, or a string")
    if isinstance(value, str) and len(value) > MAX_SCALAR_CHARACTERS:
        raise Misfit("is too long", fix=f"write at most {MAX_SCALAR_CHARACTERS} characters")
    if isinstance(value, str) and UNSTORABLE.search(value):
        raise Misfit("holds NUL or is not Unicode", fix=fix)
    if isinstance(value, bool | int | float | str):
        return value
    raise Misfit("is neither a string nor a number nor true or false", fix=fix)


Scalar = Annotated[
    bool | int | float | str,
    PlainValidator(_is_scalar),
    WithJsonSchema({"type": ["boolean", "number", "string"], "maxLength": MAX_SCALAR_CHARACTERS}),
]


_LOSS = re.compile(r"(^|[^a-z])loss$", re.IGNORECASE)


def is_loss(series: str) -> bool:
    return _LOSS.search(series) is not None


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Code(Strict):
    """A gzipped tar of the job's files, with its SHA-256.

    `store:KEY` is in the platform's own object store, wherever that is.
    """

    uri: Annotated[
        str,
        form(
            "((s3|file)://|store:)[!-~]+",
            "store:..., s3://... or file://..., without spaces",
            max_length=1024,
        ),
    ]
    sha256: Annotated[str, form("[0-9a-f]{64}", "the SHA-256 as 64 small hexadecimal digits")]


class Metric(Strict):
    """The job's main metric: `keep_best` and studies rank by it."""

    name: MetricName
    goal: Goal


class Resources(Strict):
    """`devices` ranks, one slot each, all of one pool (and one device type where one is named)."""

    pool: PoolName = "default"
    devices: Annotated[Count, Field(ge=1, le=MAX_DEVICES)] = 1
    device_type: DeviceType | None = None
    memory_bytes: Annotated[Count, Field(ge=1, le=2**50)] | None = None


class AlertRule(Strict):
    """An alert once `metric` is below or above a value, from step `after_steps` on."""

    metric: MetricName
    below: Real | None = None
    above: Real | None = None
    after_steps: Annotated[Count, Field(ge=0, le=2**40)] = 0

    @model_validator(mode="after")
    def _has_one_limit(self) -> "AlertRule":
        if (self.below is None) == (self.above is None):
            raise Misfit("needs below or above, not both", fix="write one of them", field="below")
        return self

    @property
    def limit(self) -> float:
        return (self.below or 0.0) if self.above is None else self.above

    @property
    def text(self) -> str:
        after = f" after step {self.after_steps}" if self.after_steps else ""
        side = "below" if self.above is None else "above"
        return f"{self.metric} {side} {self.limit:g}{after}"


class Alerts(Strict):
    """Which alerts of the run are raised, and when.

    `diverging`: the losses that are watched, or `off`; by default the job's main metric if it is
    minimized, otherwise `loss`. `stalled_minutes`: how long a step may take; by default ten times
    as long as usual, and a minute at least. `rules`: further ones, about any metric.
    """

    diverging: Annotated[tuple[MetricName, ...], Field(max_length=8)] | None = None
    stalled_minutes: Annotated[Real, Field(gt=0, le=10_080)] | None = None
    rules: Annotated[tuple[AlertRule, ...], Field(max_length=16)] = ()

    @field_validator("diverging", mode="before")
    @classmethod
    def _off_is_none_of_them(cls, names: Any) -> Any:
        # YAML reads `off` as false.
        return () if names is False or names == "off" else names

    @field_validator("diverging")
    @classmethod
    def _are_losses(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if not is_loss(name):
                raise Misfit("has a series that is no loss", fix="name series that end in 'loss'")
        return names


class Logs(Strict):
    """How much of each pod's output is forwarded; the operator bounds it, too."""

    kib_per_second: Annotated[Count, Field(ge=1, le=2**20)] = 200


class CheckpointPolicy(Strict):
    """When to save, and what to keep while the run is alive."""

    every_steps: Annotated[Count, Field(ge=1, le=2**40)] | None = None
    every_minutes: Annotated[Real, Field(gt=0, le=10_080)] | None = None
    keep_last: Annotated[Count, Field(ge=2, le=1000)] = 3
    keep_best: Annotated[Count, Field(ge=0, le=1000)] = 1


class Retries(Strict):
    """A failed run is retried at most `limit` times; each wait is twice the last one."""

    limit: Annotated[Count, Field(ge=0, le=100)] = 5
    backoff_seconds: Annotated[Real, Field(ge=0, le=3600)] = 1.0
    backoff_limit_seconds: Annotated[Real, Field(ge=0, le=86_400)] = 300.0


NEWEST = "newest"


class StartFrom(Strict):
    """A checkpoint of another job of the same tenant, by the name of its directory.

    Training continues from its state and its files; the job saves checkpoints of its own. `newest`:
    the newest one that is undamaged when a run starts and has no checkpoint of its own yet.
    """

    job_id: JobId
    checkpoint: Annotated[
        str,
        form(
            "(f[0-9]{12}-s[0-9]{12}-[0-9a-f]{8}|newest)",
            "the name of a checkpoint's directory, or newest",
        ),
    ]


Arguments = Annotated[
    tuple[Annotated[str, free_text(4096)], ...], Field(min_length=1, max_length=256)
]
# Shell operators. Without a shell they would be passed as arguments, which is never intended.
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"})
_INTERPRETERS = ("python", "bash", "sh", "torchrun")
# Variables that the platform sets for each rank.
_PLATFORM_VARIABLES = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)


# A longer difference is cut: all that is uploaded is in the code.
MAX_DIFF_CHARACTERS = 12_000


class Source(Strict):
    """The state of the Git repository that a job's code was taken from.

    `diff`: what is not committed of tracked files, as `git diff` prints it, of `diff_characters` in
    all. Other files make the state dirty, and are in the code alone.
    """

    commit: Annotated[str, form("[0-9a-f]{40}([0-9a-f]{24})?", "the digits of a commit")]
    branch: Annotated[str, free_text(256)] | None = None
    is_dirty: Annotated[bool, Field(strict=True)] = False
    diff: Annotated[str, free_text(MAX_DIFF_CHARACTERS)] = ""
    diff_characters: Annotated[Count, Field(ge=0, le=2**40)] = 0


class JobSpec(Strict):
    """What to run, on which resources, and its main metric. Immutable once accepted.

    `command` is a list, or one line that is split as a shell splits it; no shell runs it.
    `{name}` in it stands for the hyperparameter of this name, `{{name}}` for the text `{name}`.
    Ranks also find each hyperparameter in a variable, such as DRIVETRAIN_HP_LEARNING_RATE.
    """

    name: Name
    command: Arguments
    code: Code | None = None
    image: Annotated[str, form("[!-~]+", "an image's name, no spaces", max_length=512)] | None = (
        None
    )
    environment: Annotated[
        dict[VariableName, Annotated[str, free_text(4096)]], Field(max_length=128)
    ] = {}
    hyperparameters: Annotated[dict[VariableName, Scalar], Field(max_length=128)] = {}
    data: (
        Annotated[
            str, form("[a-z0-9+]+://[!-~]+", "an address such as s3://bucket/key", max_length=1024)
        ]
        | None
    ) = None
    max_steps: Annotated[Count, Field(ge=1, le=2**40)] | None = None
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] | None = None
    metric: Metric | None = None
    resources: Resources = Resources()
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    alerts: Alerts = Alerts()
    logs: Logs = Logs()
    start_from: StartFrom | None = None
    retries: Retries = Retries()
    priority: Annotated[Count, Field(ge=-1000, le=1000)] = 0
    tags: Annotated[tuple[Tag, ...], Field(max_length=32)] = ()
    project: Name | None = None
    source: Source | None = None
    rerun_of: JobId | None = None

    @field_validator("command", mode="before", json_schema_input_type=str | Arguments)
    @classmethod
    def _split_like_a_shell(cls, command: Any) -> Any:
        if isinstance(command, str):
            return _split(command)
        if isinstance(command, list | tuple):
            return command
        raise Misfit("is neither a line of text nor a list", fix="write one of them")

    @field_validator("command")
    @classmethod
    def _names_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0].strip():
            raise Misfit("begins with an empty word", fix="put the program first")
        return command

    @field_validator("environment")
    @classmethod
    def _leaves_the_platform_its_names(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if name.startswith("DRIVETRAIN_") or name in _PLATFORM_VARIABLES:
                raise Misfit("is set by the platform", fix="choose another name", field=name)
        return environment

    @model_validator(mode="after")
    def _has_what_it_runs(self) -> "JobSpec":
        if self.code is not None and self.image is not None:
            raise Misfit("both code and image are given", fix="give one of them", field="image")
        script = _relative_script(self.command)
        if script and self.code is None and self.image is None:
            raise Misfit(
                f"is missing: the command runs {script:.80}, which comes with code or an image",
                fix="add code (the command line takes a directory) or image",
                field="code",
            )
        return self

    @model_validator(mode="after")
    def _fits_into_an_event(self) -> "JobSpec":
        if spec_bytes(self) > MAX_READABLE_SPEC_BYTES:
            raise Misfit(f"has {spec_bytes(self)} bytes as JSON", fix=SPEC_BYTES_FIX)
        return self


def spec_bytes(spec: JobSpec) -> int:
    """The size that MAX_SPEC_BYTES bounds."""
    return len(spec.model_dump_json().encode())


class TrialOf(Strict):
    """The trial that a job runs. `rungs`: the steps, ascending, at which the search judges it."""

    study_id: StudyId
    number: Annotated[Count, Field(ge=0, le=1_000_000)]
    rungs: Annotated[tuple[Annotated[Count, Field(ge=1, le=2**40)], ...], Field(max_length=64)] = ()

    @field_validator("rungs")
    @classmethod
    def _ascend(cls, rungs: tuple[int, ...]) -> tuple[int, ...]:
        if any(step >= after for step, after in pairwise(rungs)):
            raise Misfit("do not ascend", fix="write each step once, the smallest first")
        return rungs


def _split(line: str) -> tuple[str, ...]:
    if len(line) > MAX_COMMAND_CHARACTERS:
        raise Misfit("is too long", fix=f"write at most {MAX_COMMAND_CHARACTERS} characters")
    line = line.strip()
    as_list = "write a list, such as [bash, -c, ...]"
    try:
        words = tuple(shlex.split(line))
        num_words_of_one_line = len(shlex.split(line.replace("\n", "\0")))
    except ValueError as error:
        detail = str(error).removesuffix(".").lower()
        raise Misfit(f"cannot be split like a shell line: {detail}", fix=as_list) from error
    if len(words) != num_words_of_one_line:
        raise Misfit("has more than one line", fix=f"write one command, or {as_list[6:]}")
    for word in words:
        if word in _SHELL_WORDS:
            raise Misfit(f"holds {word}, but no shell runs it", fix=as_list)
    return words


def _relative_script(command: tuple[str, ...]) -> str | None:
    """The job's script that this command runs, if it can be recognised."""
    program = command[0]
    if program.startswith("./"):
        return program
    if program.rsplit("/", 1)[-1].rstrip("0123456789.") not in _INTERPRETERS:
        return None
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    is_relative = not script.startswith("/") and not any(mark.isspace() for mark in script)
    return script if is_relative and script.endswith((".py", ".sh")) else None
