"""Where attempts resumed and how the last one failed, from the newest rows of a timeline."""

from typing import Any

from services.gateway.core.attempts import NUM_LINES, last_log, resumed


def row(type_name: str, **payload: Any) -> dict[str, Any]:
    return {"type": type_name, "payload": payload}


def test_each_attempt_is_marked_where_it_resumed_last() -> None:
    rows = [
        row("checkpoint.restored", resumed_by_attempt=3, step=250),
        row("run.failed", last_log=""),
        row("checkpoint.restored", resumed_by_attempt=2, step=100),
        row("checkpoint.restored", resumed_by_attempt=2, step=50),
    ]
    assert resumed(rows) == [{"attempt": 2, "step": 100}, {"attempt": 3, "step": 250}]


def test_the_log_is_that_of_the_newest_failure_and_ends_with_its_error() -> None:
    long = "\n".join(str(line) for line in range(100))
    rows = [
        row("run.started"),
        row("run.failed", last_log=f"{long}\nValueError: no\n"),
        row("run.failed", last_log="old"),
    ]
    shown = last_log(rows).splitlines()
    assert shown[-1] == "ValueError: no"
    assert len(shown) == NUM_LINES
    assert last_log(rows[:1]) == ""
