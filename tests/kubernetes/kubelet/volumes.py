"""A pod's volumes as directories of this machine, from Secrets, ConfigMaps, fields and tokens.

Written as a real kubelet does: each file is a link into `..data`, a link that is replaced at once,
so a reader sees all files of one version.
"""

import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet.environment import ConfigError, FindData, field_of

Object = Mapping[str, Any]
# (audience, seconds) -> a token of the pod's service account
MakeToken = Callable[[str | None, int], Awaitable[str]]
DATA = "..data"


class Volumes:
    def __init__(self, directory: Path, find: FindData, make_token: MakeToken) -> None:
        self._directory = directory
        self._find = find
        self._make_token = make_token

    async def prepare(self, pod: Object) -> None:
        """Create what is missing. Raises ConfigError where a Secret or ConfigMap is."""
        for volume in pod["spec"].get("volumes", ()):
            path = self._directory / volume["name"]
            if path.exists() or "hostPath" in volume:
                continue
            if "emptyDir" in volume:
                path.mkdir(parents=True)
                path.chmod(0o777)
                continue
            files = await self._files(volume, pod)
            path.mkdir(parents=True)
            write_at_once(path, files)

    async def refresh(self, pod: Object) -> None:
        """Downward fields follow the pod's labels and annotations."""
        for volume in pod["spec"].get("volumes", ()):
            path = self._directory / volume["name"]
            if "downwardAPI" in volume and path.exists():
                write_at_once(path, await self._files(volume, pod))

    def source(self, volume: Object, mount: Object) -> Path:
        """What to mount for a `volumeMounts` entry."""
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
        else:
            path = self._directory / volume["name"]
        if mount.get("subPath"):
            path = path / mount["subPath"]
            if not path.exists():
                path.mkdir(parents=True)
        return path

    async def _files(self, volume: Object, pod: Object) -> dict[str, str]:
        if "secret" in volume:
            source = {**volume["secret"], "name": volume["secret"]["secretName"]}
            return await self._keys("secrets", source)
        if "configMap" in volume:
            return await self._keys("configmaps", volume["configMap"])
        if "downwardAPI" in volume:
            return self._fields(volume["downwardAPI"], pod)
        if "projected" in volume:
            files: dict[str, str] = {}
            for source in volume["projected"].get("sources", ()):
                files |= await self._projected(source, pod)
            return files
        kinds = sorted(volume.keys() - {"name"})
        raise ConfigError(f"volume {volume['name']}: {kinds} is not known to the test's kubelet")

    async def _projected(self, source: Object, pod: Object) -> dict[str, str]:
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            seconds = wanted.get("expirationSeconds", 3600)
            return {wanted["path"]: await self._make_token(wanted.get("audience"), seconds)}
        if "downwardAPI" in source:
            return self._fields(source["downwardAPI"], pod)
        kind = "secrets" if "secret" in source else "configmaps"
        return await self._keys(kind, source["secret" if kind == "secrets" else "configMap"])

    async def _keys(self, kind: str, source: Object) -> dict[str, str]:
        data = await self._find(kind, source["name"])
        if data is None:
            if source.get("optional"):
                return {}
            raise ConfigError(f'{kind.removesuffix("s")} "{source["name"]}" not found')
        if "items" not in source:
            return data
        missing = [item["key"] for item in source["items"] if item["key"] not in data]
        if missing and not source.get("optional"):
            raise ConfigError(f"references non-existent secret key: {missing[0]}")
        return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}

    @staticmethod
    def _fields(source: Object, pod: Object) -> dict[str, str]:
        items = source.get("items", ())
        return {item["path"]: field_of(item["fieldRef"]["fieldPath"], pod) for item in items}


def write_at_once(directory: Path, files: Mapping[str, str]) -> None:
    """All files of one version appear together; nothing happens where they are the same."""
    current = directory / DATA
    old = Path(os.readlink(current)).name if current.is_symlink() else None
    if old and {
        str(path.relative_to(directory / old)): path.read_text()
        for path in (directory / old).rglob("*")
        if path.is_file()
    } == dict(files):
        return
    version = directory / f"..{secrets.token_hex(6)}"
    version.mkdir()
    for name, content in files.items():
        path = version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(current)
    for name in {Path(name).parts[0] for name in files}:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{DATA}/{name}")
    if old:
        shutil.rmtree(directory / old)
