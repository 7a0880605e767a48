"""`run.log_image`, `log_histogram`, `log_table`, `log_text` and `log_file`: a part of `Run`.

None of them blocks or fails training: what cannot be logged is left out, with a warning that says
why. Only rank 0 logs. The step is that of `run.log`, unless one is given.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from drivetrain import media_content
from drivetrain.environment import Environment
from drivetrain.media import Media, Place
from drivetrain.media_content import Content
from drivetrain.reporting import Reporter
from drivetrain.storage import MarkedStorage, open_storage
from drivetrain_schemas.media import media_directory


def open_media(environment: Environment, reporter: Reporter) -> Media | None:
    """Of rank 0: below the job's place in the object store, or in the directory of a local run."""
    if environment.rank:
        return None

    def open_store() -> MarkedStorage:
        of_job = media_directory(environment.tenant_id, environment.job_id)
        return open_storage(
            environment.store_url,
            environment.store_endpoint_url,
            directory="media" if environment.is_local else of_job,
            store_id=environment.store_id,
        )

    return Media(open_store, reporter.send, reporter.warn)


class MediaLogging:
    """`name` groups what is logged; at each step it shows what was logged there."""

    _media: Media | None

    @property
    def step(self) -> int:
        raise NotImplementedError

    def log_image(
        self, name: str, image: Any, *, caption: str = "", step: int | None = None
    ) -> None:
        """Log a picture, or a list of them (at most 64).

        A picture is a PIL image, an array or tensor (HW, HWC or CHW; integers from 0 to 255 or
        floats from 0 to 1), a matplotlib figure, or the path or bytes of a PNG, JPEG, GIF or WebP.
        At most 25 MB each, as the array holds them in bytes.
        """
        images = image if isinstance(image, list | tuple) else [image]
        for item, one in enumerate(images):
            self._log(name, partial(media_content.image, one), step, caption, item)

    def log_histogram(
        self, name: str, values: Any, *, bins: int = 64, step: int | None = None
    ) -> None:
        """Log how the values of an array, a tensor or a list are distributed.

        Of more than a million values, every n-th is counted.
        """
        self._log(name, partial(media_content.histogram, values, bins), step)

    def log_table(
        self,
        name: str,
        rows: Any,
        columns: Sequence[str] | None = None,
        *,
        step: int | None = None,
    ) -> None:
        """Log rows: lists with `columns`, mappings, or a DataFrame; at most 10,000 of them."""
        self._log(name, partial(media_content.table, rows, columns), step)

    def log_text(self, name: str, text: str, *, step: int | None = None) -> None:
        """Log a text, such as what a model has generated."""
        self._log(name, partial(media_content.text, text), step)

    def log_file(
        self, path: "str | os.PathLike[str]", name: str | None = None, *, step: int | None = None
    ) -> None:
        """Log a file as it is now, at most 25 MB; `name` is that of the file unless given."""
        self._log(name or Path(path).name, partial(media_content.file, path), step)

    def _log(
        self,
        name: str,
        make: Callable[[], Content],
        step: int | None,
        caption: str = "",
        item: int = 0,
    ) -> None:
        if self._media is not None:
            at = self.step if step is None else step
            self._media.log(Place(name, at, item, caption), make)
