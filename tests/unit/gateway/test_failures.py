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
