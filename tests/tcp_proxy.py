"""A TCP proxy whose network can be cut: bytes stop in both directions, and nothing is refused.

What was sent before a cut and not yet forwarded goes on after it, as TCP would do.
"""

import asyncio
import threading
from contextlib import suppress


class Proxy:
    """Listens on `port` of loopback and forwards to `target`, from a thread of its own."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self._loop = asyncio.new_event_loop()
        self._connected = asyncio.Event()
        self._connected.set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def start(self) -> None:
        self._stopping = asyncio.Event()
        self._thread.start()
        assert self._listening.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._connected.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._connected.set)

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._listening.set()
        await self._stopping.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await self._connected.wait()
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._pipe(reader, to_writer), self._pipe(to_reader, writer))
        writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                await self._connected.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
