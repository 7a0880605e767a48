"""Whether an uploaded archive of code is accepted.

In: the members of a tar in order. Out: None, or the first reason against it. An archive that
passes cannot write outside the directory it is unpacked into: names have no `..`, no member is
reached through a link, and a link's target climbs only at its beginning and never above the root.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MAX_MEMBERS = 20_000
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_NAME = 1024


class MemberKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of the archive; `target` is the text of a link."""

    name: str
    kind: MemberKind
    size_bytes: int = 0
    target: str = ""


def check_members(members: Iterable[Member]) -> str | None:
    """The reason against the archive, or None."""
    links: set[str] = set()
    unpacked = 0
    num_files = 0
    for number, member in enumerate(members, start=1):
        if number > MAX_MEMBERS:
            return f"it has more than {MAX_MEMBERS:,} members"
        unpacked += member.size_bytes
        if unpacked > MAX_UNPACKED_BYTES:
            return f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
        reason = _check_name(member.name) or _check_kind(member, links)
        if reason:
            return f"member {member.name[:120]!r}: {reason}"
        if member.kind is MemberKind.SYMLINK:
            links.add(posixpath.normpath(member.name))
        num_files += member.kind is MemberKind.FILE
    return None if num_files else "it holds no file"


def _check_name(name: str) -> str | None:
    if not name or "\0" in name or len(name) > MAX_NAME:
        return f"the name is empty, too long (over {MAX_NAME}) or holds a zero byte"
    if name.startswith("/") or "\\" in name or (len(name) > 1 and name[1] == ":"):
        return "the name is absolute or not written with forward slashes"
    if ".." in name.split("/"):
        return "the name leaves the archive with '..'"
    return None


def _check_kind(member: Member, links: set[str]) -> str | None:
    path = posixpath.normpath(member.name)
    parents = path.split("/")
    if any("/".join(parents[:depth]) in links for depth in range(1, len(parents) + 1)):
        return "its path leads through a link"
    if member.kind is MemberKind.OTHER:
        return "it is neither a file, a directory nor a link"
    if member.kind is MemberKind.SYMLINK:
        return _check_target(posixpath.dirname(path), member.target)
    if member.kind is MemberKind.HARDLINK:
        reason = _check_name(member.target)
        target = posixpath.normpath(member.target)
        return "its link leaves the archive" if reason or target in links else None
    return None


def _check_target(directory: str, target: str) -> str | None:
    if not target or target.startswith("/") or "\0" in target or "\\" in target:
        return "its link is empty or absolute"
    depth = 0 if directory in ("", ".") else len(directory.split("/"))
    parts = [part for part in target.split("/") if part not in ("", ".")]
    num_up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    if num_up > depth:
        return "its link leaves the archive"
    if ".." in parts[num_up:]:
        return "its link has '..' after a directory name"
    return None
