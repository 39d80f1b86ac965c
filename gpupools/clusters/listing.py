"""A whole list of one kind, read in pages: the only way in which lists are read here."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from gpupools.clusters import translate
from gpupools.clusters.channel import Channel, Query
from gpupools.errors import Unreachable

PAGE_SIZE = 500
MOST_PAGES = 1000  # half a million objects: more is no cluster but a server that gives pages for ever


@dataclass(slots=True)
class Listing:
    """All objects of a list, the version to watch from, and the UIDs of objects that could not be read."""

    seen: list[translate.Seen] = field(default_factory=list)
    version: str = ""
    unreadable: list[str] = field(default_factory=list)


def list_all(channel: Channel, kind: translate.Kind, *, path: str = "", query: Query = ()) -> Listing:
    """Read all pages, 500 objects each. Raises Refused with status 410 when the continuation expired meanwhile."""
    listing = Listing()
    next_page = ""
    for _ in range(MOST_PAGES):
        pairs = [*kind.query, *query, ("limit", str(PAGE_SIZE))]
        if next_page:
            pairs.append(("continue", next_page))
        data = channel.request("GET", path or kind.path, query=pairs)
        try:
            page = translate.page(kind, data)
        except msgspec.DecodeError:
            raise Unreachable("The server answered with something that is not a Kubernetes list.") from None
        listing.seen.extend(page.seen)
        listing.unreadable.extend(page.unreadable)
        listing.version = page.version
        if not page.next_page:
            return listing
        next_page = page.next_page
    raise Unreachable(f"The list of {kind.name} objects does not end.")
