"""Batches as a client in another language may write them."""

from typing import Any

from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy


class NotUtf8(_DefaultRecordBatchBuilderPy):
    """Writes the header name `bad` as bytes that are no text."""

    def append(self, *arguments: Any, **options: Any) -> Any:
        appended = super().append(*arguments, **options)
        self._buffer[:] = self._buffer.replace(b"bad", b"\xff\xfe\xff")
        return appended
