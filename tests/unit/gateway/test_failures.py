"""How the last attempt failed, from the newest rows of a timeline."""

from typing import Any

from services.gateway.core.failures import NUM_LINES, last_log


def row(type_name: str, **payload: Any) -> dict[str, Any]:
    return {"type": type_name, "payload": payload}


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


def test_a_failure_without_a_log_has_none_and_a_short_one_is_whole() -> None:
    assert last_log([row("run.failed")]) == last_log([]) == ""
    lines = [str(line) for line in range(NUM_LINES)]
    assert last_log([row("run.failed", last_log="\n".join(lines))]).splitlines() == lines
    more = "\n".join(["first", *lines])
    assert last_log([row("run.failed", last_log=more)]).splitlines() == lines
