"""What a job's tags, note and project become by a command. Pure."""

from dataclasses import dataclass

from drivetrain_schemas.annotations import MAX_TAGS, JobAnnotate


@dataclass(frozen=True, slots=True)
class Annotation:
    tags: tuple[str, ...]
    note: str
    project: str | None


@dataclass(frozen=True, slots=True)
class TooManyTags:
    number: int

    @property
    def why(self) -> str:
        return f"the job would have {self.number} tags, and at most {MAX_TAGS} are kept"


def annotate(before: Annotation, command: JobAnnotate) -> Annotation | TooManyTags | None:
    """The annotation after the command; None where it says what is so already."""
    kept = [tag for tag in before.tags if tag not in command.remove_tags]
    tags = tuple(dict.fromkeys((*kept, *command.add_tags)))
    if len(tags) > max(MAX_TAGS, len(before.tags)):
        return TooManyTags(len(tags))
    after = Annotation(
        tags=tags,
        note=before.note if command.note is None else command.note,
        project=before.project if command.project is None else command.project or None,
    )
    return None if after == before else after
