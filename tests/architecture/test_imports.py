"""Who may import what, beyond what import-linter's contracts can say."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain_schemas.topics import SERVICES

ROOT = Path(__file__).parents[2]
HTTP_CLIENTS = {"httpx", "requests", "urllib3", "aiohttp", "http.client", "urllib.request"}
# The gateway forwards people's reads; standalone asks its children whether they are ready.
MAY_CALL_HTTP = {"services/gateway", "services/standalone"}
# They call an object store and a cluster's API server, by the library under their clients.
CALL_OTHERS = {
    ROOT / "services/runtime/s3_store.py",
    ROOT / "services/scheduler/launchers/kubernetes/api.py",
}
CORE_PACKAGES = {"drivetrain_schemas", "services", "numpy", "scipy", "cmaes"}


def python_files(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def roots(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_schemas_depend_on_pydantic_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"pydantic", "pydantic_core", "drivetrain_schemas"}
    for path in python_files("schemas/drivetrain_schemas"):
        assert roots(imported(path)) <= allowed, path


def test_decisions_depend_on_the_standard_library_ids_and_units() -> None:
    allowed = set(sys.stdlib_module_names) | CORE_PACKAGES
    cores = [path for path in python_files("services") if "core" in path.parts]
    assert cores
    for path in cores:
        assert roots(imported(path)) <= allowed, path


def test_only_the_gateway_calls_another_service() -> None:
    for path in python_files("services"):
        part = "/".join(path.relative_to(ROOT).parts[:2])
        if part not in MAY_CALL_HTTP and path not in CALL_OTHERS:
            assert not imported(path) & HTTP_CLIENTS, path


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_skeleton(service: str) -> None:
    folder = ROOT / "services" / service
    for name in (
        "README.md", "__main__.py", "settings.py", "wiring.py", "handlers.py", "store.py",
        "instruments.py", "sql/0001_baseline.sql", "core/__init__.py",
    ):  # fmt: skip
        assert (folder / name).is_file(), f"services/{service}/{name} is missing"


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_in_the_import_contracts(service: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    listed = [
        {*contract.get("modules", ()), *contract.get("forbidden_modules", ())}
        for contract in settings["contracts"]
    ]
    assert sum(f"services.{service}" in modules for modules in listed) == 2, "runtime, independence"
    pure = {name for each in settings["contracts"] for name in each.get("source_modules", ())}
    assert f"services.{service}.core" in pure


def test_services_do_not_read_each_others_tables() -> None:
    """A service's statements name tables without a schema; its connection has one schema."""
    for path in [*python_files("services"), *(ROOT / "services").rglob("*.sql")]:
        text = path.read_text()
        for name in SERVICES:
            for verb in ("from ", "join ", "into ", "update "):
                assert f"{verb}{name}." not in text.lower().replace("from services.", ""), path


@pytest.mark.parametrize("module", ["drivetrain", "drivetrain.cli.main"])
def test_what_people_install_starts_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
