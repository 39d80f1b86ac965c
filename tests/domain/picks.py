"""Random cases out of one draw of bytes: with a draw for each field, drawing takes longer than the rules do."""

from __future__ import annotations

from hypothesis import strategies as st


class Picks:
    """Choices read byte by byte; zeros are the first of each, which is what a failure shrinks to."""

    def __init__(self, source):
        self._bytes = iter(source)

    def between(self, least, most):
        """A whole number of at most 255 steps, ends included."""
        return least + next(self._bytes) % (most - least + 1)

    def one_of(self, *options):
        return options[next(self._bytes) % len(options)]

    def yes(self):
        return bool(next(self._bytes) % 2)

    def several(self, least, most, make):
        """A list of what ``make`` makes, that many times."""
        return [make(self) for _ in range(self.between(least, most))]


def cases(make, *, size=480):
    """A strategy of what ``make`` makes of picks; ``size`` is the most bytes that it may read."""
    return st.binary(min_size=size, max_size=size).map(lambda source: make(Picks(source)))
