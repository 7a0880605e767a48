"""What our S3 client sends: no checksums of its own, which some S3 servers refuse."""

import asyncio

import pytest

from services.runtime.s3_store import S3Store


async def test_no_checksum_is_sent_and_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    heads: list[str] = []
    bodies: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if "expect: 100-continue" in head:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        heads.append(head)
        bodies.append(await reader.readexactly(length))
        body = b"content" if head.startswith("get") else b""
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        store = S3Store("bucket", "", f"http://127.0.0.1:{port}")
        try:
            await store.put("a", b"content")
            assert await store.get("a") == b"content"
        finally:
            await store.close()
    assert bodies == [b"content", b""], "no chunks with a trailer"
    for head in heads:
        assert "checksum" not in head
        assert "x-amz-trailer" not in head
