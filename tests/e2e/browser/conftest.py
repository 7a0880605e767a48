"""A headless Chromium, or a skip with the reason."""

import asyncio
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from services.standalone import jars
from services.standalone.ports import free_port
from tests.conftest import OpenDatabase
from tests.e2e.browser.site import Site
from tests.handlers.gateway.model import Model

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
AXE = "META-INF/resources/webjars/axe-core/4.6.3/axe.min.js"
HAS_CHROMIUM = CHROMIUM.exists()
# No requests to the vendor's hosts, which a closed network refuses.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if not HAS_CHROMIUM:
        reason = f"no Chromium at {CHROMIUM}: install Debian's chromium, or set CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        await chromium.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chart.js, from the same locked archive that the platform takes it from."""
    directory: Path = tmp_path_factory.mktemp("assets")
    cache = jars.default_cache()
    await asyncio.to_thread(jars.fetch_jars, jars.locked_jars("web"), cache)
    jars.unpack_web_assets(cache, directory)
    return directory


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def axe() -> str:
    """The script of axe-core, which finds what keeps people from using a page."""
    cache = jars.default_cache()
    (archive,) = await asyncio.to_thread(jars.fetch_jars, jars.locked_jars("test"), cache)
    with zipfile.ZipFile(archive) as opened:
        return opened.read(AXE).decode()


@pytest_asyncio.fixture(loop_scope="session")
async def site(database: OpenDatabase, assets: Path) -> AsyncIterator[Site]:
    standing = Site(Model(await database("gateway")), free_port(), assets)
    await standing.start()
    yield standing
    await standing.stop()
