"""by_steps.py on a store whose second and third save fail in the middle, after the first file."""

import sys

import by_steps

from drivetrain.directory_storage import DirectoryStorage
from drivetrain.errors import StorageError

sys.argv[0] = "by_steps.py"
saves: set[str] = set()
put = DirectoryStorage.put


def put_or_fail(self: DirectoryStorage, key: str, data: bytes) -> None:
    saves.add(key.split("/")[1])
    if len(saves) in (2, 3) and key.endswith(".json"):
        raise StorageError(f"{key}: no space left on device")
    put(self, key, data)


DirectoryStorage.put = put_or_fail
by_steps.main()
