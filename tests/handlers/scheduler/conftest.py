import pytest

from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World


@pytest.fixture
async def world(database: OpenDatabase) -> World:
    return await World(await database("scheduler"), FakeLauncher()).register()
