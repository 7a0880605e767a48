"""Generates the published contracts: JSON Schemas, AsyncAPI document, catalogue, tables of guides.

`python schemas/generate.py` writes, `--check` writes nothing and exits with 1 if a file differs.
The output is deterministic.
"""

import argparse
import sys
import tomllib
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCHEMAS))

from contract_documents import asyncapi, catalogue, guides, json_schemas  # noqa: E402
from drivetrain_schemas.registry import all_kinds  # noqa: E402

JSON = SCHEMAS / "json"
GUIDES = SCHEMAS.parent / "docs" / "guides"


def documents() -> dict[Path, str]:
    """Every generated file with its text."""
    payload_classes = list(all_kinds().values())
    version = tomllib.loads((SCHEMAS / "pyproject.toml").read_text())["project"]["version"]
    files = {
        JSON / json_schemas.file_name(each): json_schemas.text(json_schemas.json_schema(each))
        for each in payload_classes
    }
    document = asyncapi.asyncapi(payload_classes, version)
    files[SCHEMAS / "asyncapi.yaml"] = asyncapi.text(document)
    files[SCHEMAS / "README.md"] = catalogue.catalogue(payload_classes)
    generated = {
        "job-yaml.md": {"job": guides.job_fields(), "study": guides.study_fields()},
        "environment.md": {"variables": guides.variables()},
        "security.md": {
            "topics": guides.topic_access(),
            "schemas": guides.schema_access(),
            "object store": guides.store_access(),
        },
    }
    for name, blocks in generated.items():
        files[GUIDES / name] = guides.with_generated((GUIDES / name).read_text(), blocks)
    return files


def differing(files: dict[Path, str]) -> list[Path]:
    """The files that `write` would change."""
    stale = [path for path, text in files.items() if _text(path) != text]
    return sorted(stale + [path for path in JSON.glob("*.json") if path not in files])


def write(files: dict[Path, str]) -> list[Path]:
    changed = differing(files)
    JSON.mkdir(exist_ok=True)
    for path in changed:
        if path in files:
            path.write_text(files[path])
        else:
            path.unlink()
    return changed


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on differences")
    options = parser.parse_args()
    if options.check:
        stale = differing(documents())
        for path in stale:
            print(f"{path.relative_to(SCHEMAS.parent)} is not up to date: run make gen")
        return 1 if stale else 0
    for path in write(documents()):
        print(f"wrote {path.relative_to(SCHEMAS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
