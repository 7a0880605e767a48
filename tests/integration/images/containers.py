"""Runs commands of an installed image as a container would: another user, a read-only system."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("as_in_a_container.sh")
USER = 10001


@dataclass(frozen=True, slots=True)
class Container:
    image: Path
    """What the install script has made: a virtual environment."""
    volume: Path
    """The only directory that may be written."""

    def command(self, *arguments: str) -> tuple[str, ...]:
        """`python ARGUMENTS` with the image's interpreter."""
        wrapped = (str(SCRIPT), str(USER), str(self.volume), sys.base_prefix)
        program = (str(self.image / "bin/python"), *arguments)
        return ("/usr/bin/unshare", "--mount", "--propagation", "private", *wrapped, *program)

    @property
    def environment(self) -> dict[str, str]:
        """That of the Dockerfile, and nothing of the caller's."""
        return {
            "PATH": f"{self.image}/bin:/usr/sbin:/usr/bin:/bin",
            "HOME": "/nonexistent",
            "TMPDIR": str(self.volume),
            "PYTHONUNBUFFERED": "1",
        }


def container(image: Path) -> Container:
    volume = image.parent / "volume"
    volume.mkdir(exist_ok=True)
    os.chown(volume, USER, USER)
    return Container(image, volume)


def refusal() -> str | None:
    """Why this machine cannot do it."""
    if os.geteuid() != 0:
        return "needs root: it mounts file systems and changes the user"
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "true"], check=False, capture_output=True
    )
    return None if tried.returncode == 0 else "this machine permits no mount namespaces"
