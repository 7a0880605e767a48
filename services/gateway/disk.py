"""The warning that people see while the disk of the data directory is almost full, or full."""

from services.gateway.context import Gateway
from services.runtime.disk import fullest, warning


def disk_warning(gateway: Gateway) -> str | None:
    """None while there is enough space, and where the directory is not known."""
    directory = gateway.settings.data_directory
    if directory is None:
        return None
    path, disk = fullest(directory)
    return warning(disk, path)
