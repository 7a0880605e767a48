"""What is kept of the cluster's objects while a list is on its way."""

from typing import Any

from services.scheduler.launchers.kubernetes.cache import Cache


def item(name: str, uid: str = "u", version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": version}}


class Listing:
    """An API server whose answer to a list is as old as its begin."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.meanwhile = lambda: None

    async def list(self, path: str, query: object) -> tuple[list[dict[str, Any]], str]:
        found = list(self.items)
        self.meanwhile()
        return found, "9"


async def test_what_is_created_while_a_list_is_on_its_way_stays() -> None:
    listing = Listing(item("old"))
    cache = Cache(listing, "/pods", {})
    await cache.refresh()
    listing.items = []
    listing.meanwhile = lambda: cache.put_created(item("new", "v"))
    await cache.refresh()
    assert set(cache.objects) == {"new"}


async def test_an_answer_about_what_has_gone_since_is_no_news() -> None:
    changes = []
    listing = Listing(item("a"))
    cache = Cache(listing, "/pods", {}, lambda it, is_gone: changes.append(is_gone))
    await cache.refresh()
    listing.items = []
    await cache.refresh()
    cache.put_created(item("a"))
    assert cache.objects == {}
    assert changes == [False, True]
    cache.put_created(item("a", "another"))  # made again
    assert set(cache.objects) == {"a"}


async def test_an_object_that_was_made_again_is_reported_as_gone_and_new() -> None:
    changes = []
    listing = Listing(item("a", "first"))
    cache = Cache(
        listing, "/pods", {}, lambda it, is_gone: changes.append((it["metadata"]["uid"], is_gone))
    )
    await cache.refresh()
    listing.items = [item("a", "second", "2")]
    await cache.refresh()
    assert changes == [("first", False), ("first", True), ("second", False)]
