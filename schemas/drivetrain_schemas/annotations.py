"""Annotations: what people say of a job after its submission; its runs are not affected."""

from typing import Annotated

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Payload, event
from drivetrain_schemas.ids import JobId
from drivetrain_schemas.specs import Name, Tag
from drivetrain_schemas.text import form, free_text
from drivetrain_schemas.topics import COMMANDS_JOBS, EVENTS_JOBS

MAX_TAGS = 32
MAX_NOTE_CHARACTERS = 4096

Note = Annotated[str, free_text(MAX_NOTE_CHARACTERS)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)]
NameOrNone = Annotated[
    str,
    form(
        "([A-Za-z0-9][A-Za-z0-9 ._-]*)?",
        'letters, digits, spaces and ._- with a letter or digit in front, or "" for none',
        max_length=63,
    ),
]


@event("job.annotate", topic=COMMANDS_JOBS, producer="any")
class JobAnnotate(Payload):
    """Change the tags, the note or the project of a job. What is left out stays as it is.

    A note or a project of "" takes it away.
    """

    job_id: JobId
    add_tags: Tags = ()
    remove_tags: Tags = ()
    note: Note | None = None
    project: NameOrNone | None = None

    @model_validator(mode="after")
    def _does_not_contradict_itself(self) -> "JobAnnotate":
        if both := sorted(set(self.add_tags) & set(self.remove_tags)):
            raise Misfit(
                f"holds {both[0]}, which add_tags holds too", fix="keep one", field="remove_tags"
            )
        return self


@event("job.annotated", topic=EVENTS_JOBS, producer="scheduler")
class JobAnnotated(Payload):
    """The tags, the note and the project of a job as they are now; they replace those before.

    Until there is one, tags and project are those of the spec.
    """

    job_id: JobId
    tags: Tags = ()
    note: Note = ""
    project: Name | None = None
