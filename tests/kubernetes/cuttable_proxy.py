"""A TCP proxy on loopback that a test can cut and mend."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class CuttableProxy:
    """While it is cut, open connections are closed and new ones refused."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            above = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers |= {writer, above[1]}
            await asyncio.gather(_pump(reader, above[1]), _pump(above[0], writer))
            self._writers -= {writer, above[1]}


@contextlib.asynccontextmanager
async def cuttable_proxy(target_port: int) -> AsyncIterator[CuttableProxy]:
    proxy = CuttableProxy(target_port)
    await proxy.mend()
    try:
        yield proxy
    finally:
        await proxy.cut()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
