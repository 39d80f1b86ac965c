"""Reads a page as a browser does: elements with their attributes, and the text between them."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "rect", "use", "line", "circle"}


class Page(HTMLParser):
    """A page as a flat list of elements; ``text`` is what a person reads."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.pieces: list[str] = []
        self.scripts: dict[str, str] = {}
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag in {"script", "style"}:
            self._inside = found.get("id", "-")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data
        else:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        """What a person reads, blanks folded."""
        return " ".join(" ".join(self.pieces).split())

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a kind that has these."""
        return [
            attrs
            for name, attrs in self.elements
            if name == tag
            and all(attrs.get(key.rstrip("_").replace("_", "-")) == value for key, value in wanted.items())
        ]

    def value_of(self, name: str) -> str | None:
        """Return what an input of that name holds."""
        found = self.all("input", name=name)
        return found[0].get("value", "") if found else None
