"""What a program logs besides numbers, as bytes: in two steps.

The functions here are called by `run.log_image` and so on. They copy what may change after the call
(an array, a tensor, a figure), and return the rest of the work as a function, which another thread
calls. They raise Refused, with the fix, for what cannot be stored.
"""

import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drivetrain import png
from drivetrain_schemas.media import MAX_MEDIA_BYTES

MAX_ROWS = 10_000
MAX_COLUMNS = 200
MAX_CELL_CHARACTERS = 2000
MAX_BINS = 512
# Of larger arrays every n-th value is counted.
MAX_COUNTED = 1_000_000
_CHANNELS = (1, 3, 4)
_MAGIC = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}

Finish = Callable[[], bytes]


class Refused(Exception):
    """It is not logged; the message says why, and what to do."""


class Content(NamedTuple):
    """`finish` makes the bytes; `held_bytes`: what it holds in memory until then."""

    media: str
    finish: Finish
    held_bytes: int
    image_form: str | None = None
    file_name: str | None = None


def image(value: Any) -> Content:
    """A PIL image, an array or tensor (HW, HWC or CHW; floats from 0 to 1), a matplotlib figure, or
    the path or the bytes of a PNG, JPEG, GIF or WebP file."""
    if isinstance(value, str | os.PathLike):
        return _image_file(_read(Path(value)), Path(value).name)
    if isinstance(value, bytes | bytearray):
        return _image_file(bytes(value), None)
    if hasattr(value, "savefig"):  # matplotlib is not safe in two threads
        drawn = io.BytesIO()
        value.savefig(drawn, format="png")
        return _stored("image", drawn.getvalue(), image_form="png")
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        return _pil(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _pixels(value)
    raise Refused(
        f"a {type(value).__name__} is not a picture: give a PIL image, an array, a tensor, a "
        "figure, bytes or a path"
    )


def histogram(values: Any, bins: int) -> Content:
    """Of numbers: an array, a tensor or a list."""
    if not 1 <= bins <= MAX_BINS:
        raise Refused(f"bins={bins}: give 1 to {MAX_BINS}")
    if not hasattr(values, "shape"):
        numbers = [float(value) for value in values]
        num, step = len(numbers), max(1, math.ceil(len(numbers) / MAX_COUNTED))
        counted: Any = numbers[::step]
    else:
        flat = _detached(values).reshape(-1)
        num = int(flat.shape[0])
        step = max(1, math.ceil(num / MAX_COUNTED))
        counted = _copied(flat[::step])

    def finish() -> bytes:
        numbers = counted if isinstance(counted, list) else _on_cpu(counted).tolist()
        return _json(_counts(numbers, bins, num))

    return Content("histogram", finish, 8 * (num // step))


def table(rows: Any, columns: Sequence[str] | None) -> Content:
    """Rows as lists with `columns`, or as mappings; or a DataFrame."""
    if hasattr(rows, "columns") and hasattr(rows, "itertuples"):
        columns = [str(name) for name in rows.columns]
        rows = [list(row) for row in rows.head(MAX_ROWS + 1).itertuples(index=False)]
    given = list(rows)
    if len(given) > MAX_ROWS:
        raise Refused(f"the table has more than {MAX_ROWS:,} rows: log a file, or a part of it")
    if columns is None:
        if not all(isinstance(row, Mapping) for row in given):
            raise Refused("the columns have no names: give columns=[...], or rows as mappings")
        columns = list(dict.fromkeys(str(name) for row in given for name in row))
    if len(columns) > MAX_COLUMNS:
        raise Refused(f"the table has {len(columns):,} columns: give at most {MAX_COLUMNS}")
    cells = [_cells(row, columns) for row in given]
    content = _json({"columns": [str(name) for name in columns], "rows": cells})
    return _stored("table", content)


def text(value: str) -> Content:
    return _stored("text", str(value).encode("utf-8", "replace"))


def file(path: "str | os.PathLike[str]") -> Content:
    return _stored("file", _read(Path(path)), file_name=Path(path).name)


def check_size(num_bytes: int, what: str = "it") -> None:
    """Raises Refused."""
    if num_bytes > MAX_MEDIA_BYTES:
        raise Refused(
            f"{what} has {num_bytes:,} bytes, and the limit is {MAX_MEDIA_BYTES:,}: "
            "log a smaller one, or write it to a file of the job"
        )


def _stored(
    media: str, content: bytes, *, image_form: str | None = None, file_name: str | None = None
) -> Content:
    check_size(len(content))
    return Content(media, lambda: content, len(content), image_form, file_name)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_MEDIA_BYTES + 1)
            if len(content) > MAX_MEDIA_BYTES:
                check_size(max(len(content), path.stat().st_size), str(path))
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from None
    return content


def _image_file(content: bytes, name: str | None) -> Content:
    form = next((form for magic, form in _MAGIC.items() if content.startswith(magic)), None)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        form = "webp"
    if form is None:
        raise Refused("these bytes are no PNG, JPEG, GIF or WebP: use log_file for others")
    return _stored("image", content, image_form=form, file_name=name)


def _pil(value: Any) -> Content:
    check_size(value.width * value.height * len(value.getbands()), "the picture")
    copy = value.copy() if value.mode in ("L", "LA", "RGB", "RGBA") else value.convert("RGBA")
    bands = len(copy.getbands())

    def finish() -> bytes:
        return png.encode(copy.tobytes(), copy.width, copy.height, bands)

    return Content("image", finish, copy.width * copy.height * bands, "png")


def _pixels(value: Any) -> Content:
    shape = tuple(int(size) for size in value.shape)
    channels_first = _has_channels_first(shape, is_tensor=hasattr(value, "detach"))
    if channels_first is None or 0 in shape:
        raise Refused(f"the shape {shape} is not a picture: give HW, HWC or CHW, C of 1, 3 or 4")
    num = math.prod(shape)
    check_size(num, "the picture")
    copy = _copied(_detached(value))

    def finish() -> bytes:
        import numpy

        pixels = numpy.asarray(_on_cpu(copy))
        if channels_first:
            pixels = pixels.transpose(1, 2, 0)
        if pixels.dtype == bool:
            pixels = pixels * 255
        elif pixels.dtype.kind == "f":
            pixels = numpy.nan_to_num(pixels, nan=0.0, posinf=1.0, neginf=0.0) * 255 + 0.5
        pixels = numpy.ascontiguousarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))
        height, width = pixels.shape[:2]
        return png.encode(pixels.tobytes(), width, height, num // (width * height))

    return Content("image", finish, num * _item_bytes(value), "png")


def _has_channels_first(shape: tuple[int, ...], *, is_tensor: bool) -> bool | None:
    """None where it is no picture. Where both could be meant: CHW of torch, HWC of others."""
    if len(shape) == 2:
        return False
    if len(shape) != 3:
        return None
    first, last = shape[0] in _CHANNELS, shape[2] in _CHANNELS
    if first and last:
        return is_tensor
    return first if first or last else None


def _item_bytes(value: Any) -> int:
    size = value.element_size() if hasattr(value, "element_size") else value.dtype.itemsize
    return int(size)


def _detached(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _copied(value: Any) -> Any:
    """A tensor on a device is copied there, without waiting for the device."""
    return value.clone() if hasattr(value, "clone") else value.copy()


def _on_cpu(value: Any) -> Any:
    """An array; bfloat16 is no type of numpy."""
    if not hasattr(value, "cpu"):
        return value
    tensor = value.cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _counts(numbers: Iterable[float], bins: int, num_values: int) -> dict[str, Any]:
    finite = [value for value in map(float, numbers) if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / bins
    if not 0 < width < math.inf:
        raise Refused("the values are too far apart, or too close, for a histogram")
    counts = [0] * bins
    for value in finite:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return {
        "low": low,
        "high": high,
        "counts": counts,
        "num_values": num_values,
        "num_counted": len(finite),
    }


def _cells(row: Any, columns: Sequence[str]) -> list[Any]:
    if isinstance(row, Mapping):
        named = {str(name): value for name, value in row.items()}
        return [_cell(named.get(str(name))) for name in columns]
    cells = list(row)
    if len(cells) != len(columns):
        raise Refused(f"a row has {len(cells)} cells, and there are {len(columns)} columns")
    return [_cell(cell) for cell in cells]


def _cell(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:MAX_CELL_CHARACTERS]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
