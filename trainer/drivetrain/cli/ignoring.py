"""Which files of a directory of code are not sent, and why.

The rules, weakest first: what no job needs, secrets and virtual environments; `.gitignore` in the
directory, in those above it up to the repository's root, and in those below it; `.drivetrainignore`
at the top. Both files have the syntax of git: the last pattern that matches decides, and `!NAME` in
`.drivetrainignore` sends what a weaker rule leaves out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from drivetrain.cli.errors import InvalidInput

IGNORE_FILE = ".drivetrainignore"
GIT_IGNORE_FILE = ".gitignore"

SECRETS = "may contain passwords"
ENVIRONMENT = "a virtual environment"
RUNS = "written by runs outside the platform"

_NEVER_NEEDED = (
    ".git",
    "__pycache__/",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    "node_modules/",
    ".DS_Store",
)
_SECRETS = (".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".netrc")
_ENVIRONMENTS = (".venv/", "venv/")
_RUNS = ("/runs/",)


@dataclass(frozen=True, slots=True)
class Rule:
    """The patterns of one source; `prefix` is the way from their directory to the code's.

    `reason` is shown for what they leave out; empty: nothing is shown.
    """

    spec: GitIgnoreSpec
    reason: str = ""
    prefix: str = ""
    base: str = ""

    def verdict(self, path: str) -> bool | None:
        """Whether `path` is left out; None: no pattern matches. A directory ends with a slash."""
        if not path.startswith(self.base):
            return None
        return self.spec.check_file(self.prefix + path[len(self.base) :]).include


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules that hold in one directory, weakest first; `own` is `.drivetrainignore`."""

    weaker: tuple[Rule, ...]
    own: Rule

    def reason_against(self, path: str, location: Path) -> str | None:
        """Why `path` is left out; None: it is sent. `location` is where it is on this machine."""
        reason: str | None = None
        has_verdict = False
        for rule in (*self.weaker, self.own):
            verdict = rule.verdict(path)
            if verdict is not None:
                has_verdict = True
                reason = rule.reason if verdict else None
        if not has_verdict and path.endswith("/") and _is_environment(location):
            return ENVIRONMENT
        return reason

    def below(self, directory: Path, base: str) -> "Rules":
        """The rules in a directory below, whose own `.gitignore` is added."""
        lines = _lines(directory / GIT_IGNORE_FILE)
        if not lines:
            return self
        return Rules((*self.weaker, Rule(_spec(lines), GIT_IGNORE_FILE, base=base)), self.own)


def read_rules(directory: Path) -> Rules:
    """The rules at the top of the code. Raises InvalidInput where a file cannot be read."""
    fixed = (
        Rule(_spec(_NEVER_NEEDED)),
        Rule(_spec(_RUNS), RUNS),
        Rule(_spec(_ENVIRONMENTS), ENVIRONMENT),
        Rule(_spec(_SECRETS), SECRETS),
    )
    above = tuple(_of_repository(directory))
    return Rules((*fixed, *above), Rule(_spec(_lines(directory / IGNORE_FILE))))


def _of_repository(directory: Path) -> Iterator[Rule]:
    """The `.gitignore` files from the repository's root down to the directory itself."""
    whole = directory.resolve()
    places = [whole, *whole.parents]
    root = next((at for at, place in enumerate(places) if (place / ".git").exists()), 0)
    found = []
    for place in reversed(places[: root + 1]):
        prefix = "" if place == whole else f"{whole.relative_to(place).as_posix()}/"
        found.append(Rule(_spec(_lines(place / GIT_IGNORE_FILE)), GIT_IGNORE_FILE, prefix))
    # A directory that is itself ignored was named on purpose: then only its own file counts.
    is_ignored = any(rule.spec.match_file(rule.prefix) for rule in found if rule.prefix)
    yield from found[-1:] if is_ignored else found


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(lines)


def _lines(path: Path) -> Sequence[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            _spec((line,))
        except ValueError as error:
            place = f"{path}:{number}"
            raise InvalidInput(
                f"{place}: {line!r:.80} is not a pattern", fix="remove it"
            ) from error
    return lines


def _is_environment(location: Path) -> bool:
    return (location / "pyvenv.cfg").exists() or (location / "conda-meta").is_dir()
