"""From a file to a request: read the YAML, apply `--set`, check the contract, upload the code.

The contract is checked before anything is sent, with the platform's own messages, and errors show
the line of the file. `code: DIRECTORY` in a job is packed, uploaded under its digest, and replaced
by {uri, sha256}. This is the last step, after everything else was checked.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drivetrain.cli.command_line import DEFAULT_FILE, as_spec
from drivetrain.cli.documents import MAX_BYTES, Document, read_document
from drivetrain.cli.errors import FieldProblem, InvalidInput
from drivetrain.cli.gateway import Gateway
from drivetrain.cli.git_source import source_of
from drivetrain.cli.ignoring import ENVIRONMENT, GIT_IGNORE_FILE, IGNORE_FILE, RUNS, SECRETS
from drivetrain.cli.names import find_study
from drivetrain.cli.output import write_note
from drivetrain.cli.packing import LeftOut, pack
from drivetrain_schemas import launching
from drivetrain_schemas.errors import UNKNOWN_FIX, field_errors
from drivetrain_schemas.jobs import FieldError, JobSpec
from drivetrain_schemas.specs import MAX_SPEC_BYTES
from drivetrain_schemas.studies import StudySpec
from drivetrain_schemas.submission import problems

COMMAND_LINE = "the command line"
# In place of the code that is not uploaded yet, while the rest is checked.
_PENDING_CODE = {"uri": "file:///pending", "sha256": "0" * 64}

# Paths that one line names.
MAX_NAMED = 4
# The reasons that a line of .drivetrainignore overrides.
RULES = frozenset({ENVIRONMENT, GIT_IGNORE_FILE, RUNS, SECRETS})


def load_job(
    file: str | None,
    settings: Sequence[str],
    gateway: Gateway | None,
    command: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> dict[str, Any]:
    """A job's spec, ready to be sent; without a gateway its code is not uploaded.

    A command replaces the file's, or makes the file unnecessary; tags are added. Without a file and
    a command, the file is `job.yaml`. Raises InvalidInput.
    """
    if file is None and command:
        document = Document(COMMAND_LINE, as_spec(command, Path.cwd()), {})
    else:
        file = file or DEFAULT_FILE
        document = _read(file)
    spec = _mapping(document)
    if command:
        spec["command"] = list(command)
    assigned = _assign(spec, settings)
    if tags and isinstance(spec.setdefault("tags", []), list):
        spec["tags"] = list(dict.fromkeys([*spec["tags"], *tags]))
    code = _take_code(spec)
    _check(spec, JobSpec, document, assigned)
    if code is not None and gateway is not None:
        directory = _directory(file or "-", code)
        spec["code"] = _upload(directory, gateway)
        _name_source(spec, directory)
    return spec


def load_study(file: str, settings: Sequence[str], gateway: Gateway) -> dict[str, Any]:
    """A study's spec, ready to be sent; its `job` may name a directory of code as well, and
    `warm_start` studies by their names."""
    document = _read(file)
    spec = _mapping(document)
    assigned = _assign(spec, settings)
    earlier, job = spec.get("warm_start"), spec.get("job")
    if isinstance(earlier, list) and all(isinstance(each, str) for each in earlier):
        spec["warm_start"] = [find_study(gateway, each) for each in earlier]
    code = _take_code(job) if isinstance(job, dict) else None
    _check(spec, StudySpec, document, assigned)
    if code is not None and isinstance(job, dict):
        directory = _directory(file, code)
        job["code"] = _upload(directory, gateway)
        _name_source(job, directory)
    return spec


def _name_source(job: dict[str, Any], directory: Path) -> None:
    """Where the file does not say it, and the spec has room for it."""
    if "source" in job or (source := source_of(directory)) is None:
        return
    job["source"] = source
    size = len(json.dumps(job, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MAX_SPEC_BYTES // 2:
        job["source"] = {name: value for name, value in source.items() if name != "diff"}


def check_job(spec: dict[str, Any], settings: Sequence[str]) -> None:
    """Apply `--set` to a spec that is no file, and check it."""
    _check(spec, JobSpec, read_document("{}", "the job"), _assign(spec, settings))


def _read(file: str) -> Document:
    if file == "-":
        return read_document(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        fix = f"`drivetrain init` writes a {DEFAULT_FILE}, and `drivetrain job submit -- COMMAND` "
        fix = f"{fix}needs none" if file == DEFAULT_FILE else ""
        raise InvalidInput(f"cannot read {file}: No such file or directory", fix=fix) from None
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}") from error
    return read_document(content, file)


def _mapping(document: Document) -> dict[str, Any]:
    if not isinstance(document.value, dict):
        raise InvalidInput(f"{document.name} is not a mapping", fix="write `name: value` lines")
    return document.value


def _assign(spec: dict[str, Any], settings: Sequence[str]) -> set[str]:
    """Apply each `--set PATH=VALUE`; the value is read as YAML. Returns the paths."""
    assigned = set()
    for setting in settings:
        path, equals, text = setting.partition("=")
        parts = path.split(".")
        if not equals or not all(parts):
            raise InvalidInput(
                f"--set {setting!r:.200} is not an assignment",
                fix="write --set hyperparameters.learning_rate=0.1",
            )
        target = spec
        for part in parts[:-1]:
            inner = target.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InvalidInput(f"--set {path}: {part} is not a mapping")
            target = inner
        target[parts[-1]] = read_document(text, f"--set {path}").value if text else ""
        assigned.add(path)
    return assigned


def _take_code(job: dict[str, Any]) -> str | None:
    """The directory that `code` names, which is replaced by a placeholder."""
    code = job.get("code")
    if not isinstance(code, str):
        return None
    if not code:
        raise InvalidInput("code is empty", fix="name a directory, such as `code: .`")
    job["code"] = _PENDING_CODE
    return code


def _check(
    spec: dict[str, Any],
    contract: type[JobSpec] | type[StudySpec],
    document: Document,
    assigned: set[str],
) -> None:
    found: Sequence[FieldError]
    try:
        found = tuple(_problems(contract.model_validate(spec)))
    except ValidationError as error:
        found = field_errors(error, contract=contract)
    if found:
        shown = [
            FieldProblem(
                problem.field,
                problem.message,
                _hyperparameter_fix(problem, assigned) or problem.fix,
                _place(problem.field, document, assigned),
            )
            for problem in found
        ]
        raise InvalidInput(f"{document.name} is invalid", problems=shown)


def _problems(valid: JobSpec | StudySpec) -> Iterator[FieldError]:
    """What the contract allows and the platform refuses, or the launcher in the command."""
    if isinstance(valid, JobSpec):
        yield from problems(valid)
    job, field = (valid.job, "job.command") if isinstance(valid, StudySpec) else (valid, "command")
    if flaw := launching.mismatch(job.command, job.resources.devices):
        text, _, fix = flaw.partition(": ")
        yield FieldError(field=field, message=text, fix=fix)


def _hyperparameter_fix(problem: FieldError, assigned: set[str]) -> str:
    """`--set lr=0.1` is most probably meant for the script."""
    is_meant = problem.field in assigned and problem.fix == UNKNOWN_FIX
    return f"for a hyperparameter: --set hyperparameters.{problem.field}=..." if is_meant else ""


def _place(field: str, document: Document, assigned: set[str]) -> str:
    by_option = any(field == path or field.startswith(f"{path}.") for path in assigned)
    return "--set" if by_option else document.place(field)


def _directory(file: str, code: str) -> Path:
    """A relative directory is relative to the file."""
    base = Path.cwd() if file == "-" else Path(file).parent
    return base / Path(code).expanduser()


def _upload(directory: Path, gateway: Gateway) -> dict[str, str]:
    package = pack(directory)
    for line in _left_out_in_words(package.left_out):
        write_note(line)
    answer = gateway.upload("/v1/code", package.content)
    count = "1 file" if package.num_files == 1 else f"{package.num_files} files"
    write_note(f"uploaded {count} ({len(package.content):,} bytes)")
    return {"uri": answer["uri"], "sha256": answer["sha256"]}


def _left_out_in_words(left_out: Sequence[LeftOut]) -> list[str]:
    """One line for each reason, and how to send a file all the same."""
    paths: dict[str, list[str]] = {}
    for one in left_out:
        paths.setdefault(one.reason, []).append(one.path)
    lines = []
    for reason, names in paths.items():
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        lines.append(f"not sent: {', '.join(names[:MAX_NAMED])}{more} ({reason})")
    if any(reason in RULES for reason in paths):
        lines.append(f"  to send one of them, add a line !NAME to {IGNORE_FILE}")
    return lines
