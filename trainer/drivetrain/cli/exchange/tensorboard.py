"""A job as an event file of TensorBoard: scalars with step and time, and hyperparameters.

TensorBoard's own writer would bring gRPC and a web server for two message types. A file is a row of
records: length, masked CRC of the length, message, masked CRC of the message. A message is an
`Event` of protocol buffers; the numbers of its fields are below.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from drivetrain.cli.exchange import facts
from drivetrain.cli.exchange.history import Sample
from drivetrain.cli.output import Item

VERSION = "brain.Event:2"
_HPARAMS_BEGIN, _HPARAMS_END = "_hparams_/session_start_info", "_hparams_/session_end_info"
# Event: wall_time 1, step 2, file_version 3, summary 5. Summary: value 1.
# Value: tag 1, simple_value 2, metadata 9. SummaryMetadata: plugin_data 1.
# PluginData: plugin_name 1, content 2.
# HParamsPluginData: version 1, session_start_info 3, session_end_info 4.
# SessionStartInfo: hparams 1, group_name 4, start_time_secs 5. SessionEndInfo: status 1, end 2.
# Value of google.protobuf: number_value 2, string_value 3, bool_value 4.
_DELIMITED, _DOUBLE, _FLOAT = 2, 1, 5
_STATUS = {"succeeded": 1, "stopped": 1, "failed": 2, "cancelled": 2}  # else 3, running


def file_name(job: Item) -> str:
    """The name by which TensorBoard knows an event file."""
    return f"events.out.tfevents.{int(_began(job))}.{job['job_id']}"


def write_events(target: Path, job: Item, samples: Iterable[Sample]) -> int:
    """Returns the number of samples. Values are kept as TensorBoard does, in 32 bits."""
    num = 0
    with target.open("wb") as file:
        file.write(_record(_double(1, _began(job)) + _text(3, VERSION)))
        for value in _hyperparameters(job):
            file.write(_record(_double(1, _began(job)) + _message(5, _message(1, value))))
        for one in samples:
            name = one.name if one.rank == 0 else f"rank_{one.rank}/{one.name}"
            value = _text(1, name) + _float(2, one.value)
            summary = _message(5, _message(1, value))
            file.write(_record(_double(1, one.at) + _integer(2, one.step) + summary))
            num += 1
    return num


def _began(job: Item) -> float:
    return facts.seconds(job["started_at"] or job["submitted_at"]) or 0.0


def _hyperparameters(job: Item) -> list[bytes]:
    """The two values that the page "HParams" reads."""
    parameters: Mapping[str, Any] = facts.hyperparameters(job)
    if not parameters:
        return []
    entries = b"".join(
        _message(1, _text(1, name) + _message(2, _any_value(value)))
        for name, value in parameters.items()
    )
    begin = entries + _text(4, job["job_id"]) + _double(5, _began(job))
    ended = facts.seconds(job["finished_at"])
    end = _integer(1, _STATUS.get(job["state"], 3)) + (_double(2, ended) if ended else b"")
    return [_hparams(_HPARAMS_BEGIN, 3, begin), _hparams(_HPARAMS_END, 4, end)]


def _hparams(tag: str, number: int, content: bytes) -> bytes:
    plugin = _text(1, "hparams") + _message(2, _message(number, content))
    return _text(1, tag) + _message(9, _message(1, plugin))


def _any_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return _varint(4 << 3) + _varint(int(value))
    if isinstance(value, int | float):
        return _double(2, float(value))
    return _text(3, str(value))


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _DOUBLE) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # too large for TensorBoard
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(number << 3 | _FLOAT) + packed


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode())


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _masked_crc(length) + message + _masked_crc(message)


def _crc_table() -> tuple[int, ...]:
    """Of CRC-32C, the polynomial of Castagnoli."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _masked_crc(content: bytes) -> bytes:
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
