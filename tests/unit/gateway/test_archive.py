import pytest

from services.gateway.core.archive import (
    MAX_MEMBERS,
    MAX_NAME,
    MAX_UNPACKED_BYTES,
    Member,
    MemberKind,
    check_members,
)

FILE = Member("train.py", MemberKind.FILE, 100)


def link(name: str, target: str) -> Member:
    return Member(name, MemberKind.SYMLINK, target=target)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((FILE,), id="one file"),
        pytest.param((Member("./a", MemberKind.DIRECTORY), Member("./a/b.py", MemberKind.FILE)),
                     id="a directory with a leading dot"),
        pytest.param((FILE, link("main.py", "train.py")), id="a link beside its target"),
        pytest.param((FILE, link("a/b/main.py", "../../train.py")), id="a link with .. inside"),
        pytest.param((FILE, Member("same.py", MemberKind.HARDLINK, target="train.py")),
                     id="a hard link inside"),
        pytest.param((FILE, link("a", "b/c")), id="a link into a directory"),
        pytest.param((FILE, link("a/b", "./c")), id="a link with a dot"),
        pytest.param((FILE, link("a/b", "..")), id="a link to its own root"),
        pytest.param((FILE, link("a/b", "c"), Member("a/c", MemberKind.FILE)), id="beside a link"),
        pytest.param((Member("x" * MAX_NAME, MemberKind.FILE),), id="the longest name"),
        pytest.param((Member("x", MemberKind.FILE),), id="the shortest name"),
        pytest.param((Member(":x", MemberKind.FILE),), id="a colon that is no drive"),
        pytest.param((Member("big", MemberKind.FILE, MAX_UNPACKED_BYTES),), id="the largest"),
        pytest.param((Member("a..b", MemberKind.FILE),), id="dots in a name"),
    ],
)  # fmt: skip
def test_what_stays_inside_is_kept(members: tuple[Member, ...]) -> None:
    assert check_members(members) is None


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((Member("/etc/passwd", MemberKind.FILE),), id="an absolute name"),
        pytest.param((Member("C:/x", MemberKind.FILE),), id="a drive"),
        pytest.param((Member("C:", MemberKind.FILE),), id="a drive alone"),
        pytest.param((Member("a\\..\\b", MemberKind.FILE),), id="backslashes"),
        pytest.param((Member("../x", MemberKind.FILE),), id="leaves the archive"),
        pytest.param((Member("a/../../x", MemberKind.FILE),), id="leaves the archive midway"),
        pytest.param((Member("", MemberKind.FILE),), id="no name"),
        pytest.param((Member("a\0b", MemberKind.FILE),), id="a zero byte"),
        pytest.param((FILE, Member("pipe", MemberKind.OTHER)), id="a device or pipe"),
        pytest.param((FILE, link("x", "/etc/passwd")), id="an absolute link"),
        pytest.param((FILE, link("x", "../up")), id="a link out"),
        pytest.param((FILE, link("a/x", "../../up")), id="a link out from a directory"),
        pytest.param((FILE, link("x", "")), id="an empty link"),
        pytest.param((FILE, link("x", "..")), id="a link above the root"),
        pytest.param((FILE, link("a/b", "c/../d")), id="a link that climbs later"),
        pytest.param((FILE, link("x", "a\0b")), id="a link with a zero byte"),
        pytest.param((FILE, link("x", "a\\b")), id="a link with a backslash"),
        pytest.param((FILE, link("a/d", "x"), Member("a/d/e/f", MemberKind.FILE)),
                     id="far behind a link"),
        pytest.param((Member("x" * (MAX_NAME + 1), MemberKind.FILE),), id="a long name"),
        pytest.param((FILE, Member("h", MemberKind.HARDLINK)), id="a hard link to nothing"),
        pytest.param((link("a", "b"), Member("d", MemberKind.DIRECTORY)), id="links alone"),
        pytest.param((FILE, link("a/l1", ".."), link("l2", "a/l1/..")), id="a link through a link"),
        pytest.param((FILE, link("d", "a"), Member("d/x", MemberKind.FILE)), id="behind a link"),
        pytest.param((FILE, link("d", "a"), Member("d", MemberKind.FILE)), id="over a link"),
        pytest.param((FILE, Member("h", MemberKind.HARDLINK, target="../x")), id="a hard link out"),
        pytest.param((FILE, link("s", "a"), Member("h", MemberKind.HARDLINK, target="s")),
                     id="a hard link to a link"),
        pytest.param((Member("big", MemberKind.FILE, MAX_UNPACKED_BYTES + 1),), id="too large"),
        pytest.param((Member("a", MemberKind.FILE, MAX_UNPACKED_BYTES),
                      Member("b", MemberKind.FILE, 1)), id="too large together"),
        pytest.param((Member("a", MemberKind.DIRECTORY),), id="no file"),
        pytest.param((), id="empty"),
    ],
)  # fmt: skip
def test_what_could_leave_is_refused(members: tuple[Member, ...]) -> None:
    assert check_members(members) is not None


def test_members_are_counted_without_reading_them_all() -> None:
    endless = (Member(f"f{number}", MemberKind.FILE) for number in iter(lambda: 1, 2))
    assert f"{MAX_MEMBERS:,}" in (check_members(endless) or "")


def test_as_many_members_as_may_be_are_taken() -> None:
    members = [Member(f"f{number}", MemberKind.FILE) for number in range(MAX_MEMBERS)]
    assert check_members(members) is None
    assert check_members([*members, FILE]) is not None


def test_a_refusal_names_the_member_in_short() -> None:
    assert check_members([Member("/" + "x" * 500, MemberKind.FILE)]) == (
        f"member '/{'x' * 119}': the name is absolute or not written with forward slashes"
    )
