"""The warning that people see while the disk of the data directory is almost full, or full."""

from services.gateway.context import Gateway
from services.runtime.disk import read_disk, warning


def disk_warning(gateway: Gateway) -> str | None:
    """None while there is enough space, and where the directory is not known."""
    directory = gateway.settings.data_directory
    return warning(read_disk(directory), directory) if directory else None
