"""The Dockerfiles: what can be checked without an engine."""

import re
from pathlib import Path

import pytest

from tests.architecture.test_hygiene import ROOT

IMAGES = ROOT / "deploy" / "images"
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
LABELS = {"title", "description", "licenses", "version", "revision"}


def _instructions(image: str) -> list[tuple[str, str]]:
    text = (IMAGES / image / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, value.strip()) for name, _, value in lines]


@pytest.mark.parametrize("image", ["services", "training"])
def test_a_dockerfile_is_two_stages_that_end_without_root(image: str) -> None:
    found = _instructions(image)
    # No ADD: it fetches addresses and unpacks archives without being asked.
    assert {name for name, _ in found} <= INSTRUCTIONS
    stages = [value for name, value in found if name == "FROM"]
    assert stages == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    last = found[len(found) - 1 - [name for name, _ in found][::-1].index("FROM") :]
    assert [name for name, _ in last if name == "RUN"] == []
    assert [value.split()[0] for name, value in last if name == "COPY"] == ["--from=build"]
    (user,) = [value for name, value in last if name == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    (labels,) = [value for name, value in last if name == "LABEL"]
    assert set(re.findall(r"org\.opencontainers\.image\.(\w+)=", labels)) == LABELS


@pytest.mark.parametrize("image", ["services", "training"])
def test_a_dockerfile_installs_by_the_script_that_is_tested(image: str) -> None:
    (run,) = [value for name, value in _instructions(image) if name == "RUN"]
    assert run.split()[-2:] == [f"deploy/images/{image}/install", "/opt/drivetrain"]


def test_images_name_no_index() -> None:
    for path in (*IMAGES.rglob("*"), ROOT / ".dockerignore"):
        if path.is_file():
            assert not re.search(r"https?://|index-url", path.read_text()), path


def test_the_build_context_is_a_list_of_what_is_needed() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    for rule in rules[1:]:
        if rule.startswith("!"):
            assert Path(ROOT, rule[1:]).exists(), rule
