"""The ids of spans: what is read from an event, and what follows from a run."""

import pytest

from services.runtime.trace_context import Context, of_attempt, parse

SUBMITTED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033311-01",
    ],
)
def test_what_is_no_context_is_none(text: str | None) -> None:
    assert parse(text) is None


def test_a_context_is_written_as_it_was_read() -> None:
    context = parse(SUBMITTED)
    assert context is not None
    assert context.traceparent() == SUBMITTED


def test_the_first_attempt_is_in_the_trace_of_its_submission_and_the_next_in_its_own() -> None:
    first = of_attempt("run_x_1", 1, SUBMITTED)
    second = of_attempt("run_x_2", 2, SUBMITTED)
    assert first.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert len({first.trace_id, second.trace_id}) == 2
    assert len({first.span_id, second.span_id, "b7ad6b7169203331"}) == 3
    assert parse(second.traceparent()) == second


def test_every_process_knows_the_span_of_an_attempt() -> None:
    assert of_attempt("run_x_1", 1, SUBMITTED) == of_attempt("run_x_1", 1, SUBMITTED)
    assert of_attempt("run_x_1", 1, None) != of_attempt("run_y_1", 1, None)


def test_a_submission_that_is_not_to_be_recorded_stays_so() -> None:
    assert of_attempt("run_x_1", 1, SUBMITTED[:-2] + "00") == Context(
        "0af7651916cd43dd8448eb211c80319c", of_attempt("run_x_1", 1, SUBMITTED).span_id, "00"
    )
