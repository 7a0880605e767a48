"""One broker with certificates and users for all tests of this folder."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from drivetrain_schemas.access import ACCESS
from tests.secured_kafka import SecuredKafka, running_secured_kafka


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecuredKafka]:
    async with running_secured_kafka(tmp_path_factory.mktemp("secured"), [*ACCESS]) as running:
        yield running
