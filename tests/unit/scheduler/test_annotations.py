"""What a job's tags, note and project become by a command."""

import pytest

from drivetrain_schemas.annotations import MAX_TAGS, JobAnnotate
from services.scheduler.core.annotations import Annotation, TooManyTags, annotate

BEFORE = Annotation(("a", "b"), "a note", "vision")
FULL = Annotation(tuple(f"t{number}" for number in range(MAX_TAGS)), "", None)


def command(**fields) -> JobAnnotate:
    return JobAnnotate(job_id="job_" + "a" * 26, **fields)


CASES = {
    "tags are added behind those that are kept": (
        command(add_tags=("c", "a"), remove_tags=("b",)),
        Annotation(("a", "c"), "a note", "vision"),
    ),
    "a note replaces the note": (command(note="new"), Annotation(("a", "b"), "new", "vision")),
    "an empty note takes it away": (command(note=""), Annotation(("a", "b"), "", "vision")),
    "a project replaces the project": (
        command(project="speech"),
        Annotation(("a", "b"), "a note", "speech"),
    ),
    "an empty project takes it away": (command(project=""), Annotation(("a", "b"), "a note", None)),
    "what is so already changes nothing": (
        command(add_tags=("b",), remove_tags=("x",), note="a note", project="vision"),
        None,
    ),
}


@pytest.mark.parametrize(("command", "want"), CASES.values(), ids=CASES.keys())
def test_annotate(command, want):
    assert annotate(BEFORE, command) == want


def test_more_tags_than_are_kept_are_refused():
    assert annotate(FULL, command(add_tags=("x",))) == TooManyTags(MAX_TAGS + 1)
    swapped = annotate(FULL, command(add_tags=("x",), remove_tags=("t0",)))
    assert swapped == Annotation((*FULL.tags[1:], "x"), "", None)


def test_more_tags_than_that_from_the_spec_may_stay_but_not_grow():
    many = Annotation((*FULL.tags, "u", "v"), "", None)
    assert annotate(many, command(note="n")) == Annotation(many.tags, "n", None)
    assert annotate(many, command(add_tags=("w",))) == TooManyTags(MAX_TAGS + 3)
