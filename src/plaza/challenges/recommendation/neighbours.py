"""Computes which challenges are similar from who takes part in which. Pure arithmetic, without I/O.

For the busiest challenges this is EASE (Steck, "Embarrassingly Shallow Autoencoders", 2019): each challenge is
predicted from all others by ridge regression, in closed form: one inverse of the matrix of how many users two
challenges share. It beats far larger models on logs of this kind, and a weight explains itself: how much taking part in
one challenge predicts taking part in the other. The cost grows with the cube of the number of challenges, so the rest
get item-kNN: the cosine similarity of two challenges' users, which needs only pairs that share a user.

Two additions. A user who takes part in everything says little about similarity, so users weigh less the more they do.
And a second penalty grows with a challenge's number of users, which equals training with random dropout (Steck,
"Autoencoders that don't overfit towards the Identity", 2020).

Negative weights are stored too: they mean that two challenges share fewer users than their sizes suggest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float32]

# Inverting a 4,000 × 4,000 matrix takes seconds and 100 MB.
MAX_EASE_ITEMS: Final = 4_000
# Fewer weights lose quality: 256 cost 1.5% of the gain over popularity, measured by `plaza challenges evaluate`.
MAX_NEIGHBOURS: Final = 256
# Tuned on held-out parts of the training data, with both splits; 200 to 500 are nearly as good.
RIDGE: Final = 300.0
DROPOUT: Final = 0.33
DAMPING: Final = 0.25
# A user's newest challenge weighs 1, the oldest 0.22: interests change. Chosen by what is served, on held-out parts.
RECENCY_DECAY: Final = 1.5
# Shrinks similarities that are based on few users.
SHRINKAGE: Final = 30.0
# A user with more challenges than this is a bot or says nothing about similarity.
MAX_ITEMS_PER_USER: Final = 1_000
# The largest matrix that numpy inverts in one call.
INVERSE_BLOCK: Final = 512
# Numbers per step: memory does not grow with the log, and other threads can run in between.
STEP_NUMBERS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """An item's neighbours, strongest weight first."""

    item: int
    others: Ints
    weights: Floats


@dataclass(frozen=True, slots=True)
class InteractionLog:
    """Which users have which items, indexed both ways. Items are numbered from the busiest on."""

    original: Ints  # the original number of each item
    weight: Floats  # of each user
    by_user: tuple[Ints, Ints]  # where each user's items start; the items
    by_item: tuple[Ints, Ints]  # where each item's users start; the users

    @classmethod
    def from_pairs(cls, users: Ints, items: Ints) -> InteractionLog:
        """Build the log from pairs of user and item numbers from 0, in any order, repeats allowed."""
        user_count, item_count = int(users.max()) + 1, int(items.max()) + 1
        pairs = _sorted_pairs(users, items, item_count)
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        items = (pairs % item_count).astype(np.int32)
        audience = np.bincount(items, minlength=item_count)
        busiest = np.argsort(-audience, kind="stable")
        rank = np.empty(item_count, dtype=np.int32)
        rank[busiest] = np.arange(item_count)
        pairs += rank[items] - items
        pairs.sort()
        users, items = _limit_items(
            (pairs // item_count).astype(np.int32), (pairs % item_count).astype(np.int32), user_count
        )
        del pairs
        original = busiest[: np.count_nonzero(audience)]
        item_pairs = _sorted_pairs(items, users, user_count)
        item_starts = _starts((item_pairs // user_count).astype(np.int32), len(original))
        starts = _starts(users, user_count)
        weight = np.maximum(np.diff(starts), 1).astype(np.float32) ** -DAMPING
        weight *= user_count / weight.sum()
        return cls(original, weight, (starts, items), (item_starts, (item_pairs % user_count).astype(np.int32)))

    def __len__(self) -> int:
        return len(self.original)

    def shared(self, first: int, last: int, width: int) -> Floats:
        """The weighted number of users that items `first` to `last` share with each of the first `width` items."""
        starts, users = self.by_item
        found = np.zeros((last - first) * width, dtype=np.float32)
        selected = users[starts[first] : starts[last]]
        rows = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
        for begin, end in self._steps(selected):
            row, column, weight = self._expanded(rows[begin:end], selected[begin:end])
            inside = column < width
            np.add.at(found, row[inside] * width + column[inside], weight[inside])
        return found.reshape(last - first, width)

    def _steps(self, users: Ints) -> Iterator[tuple[int, int]]:
        """Yield ranges of users whose items together are at most `STEP_NUMBERS`."""
        ends = np.cumsum(np.diff(self.by_user[0])[users])
        begin, done = 0, 0
        while begin < len(users):
            end = max(begin + 1, int(np.searchsorted(ends, done + STEP_NUMBERS, side="right")))
            yield begin, end
            begin, done = end, int(ends[end - 1])

    def _expanded(self, rows: Ints, users: Ints) -> tuple[Ints, Ints, Floats]:
        """For each row and its user: all of the user's items, with the user's weight."""
        starts, items = self.by_user
        sizes = starts[users + 1] - starts[users]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return (
            np.repeat(rows, sizes),
            items[np.repeat(starts[users], sizes) + offsets],
            np.repeat(self.weight[users], sizes),
        )


def fit(
    users: Ints, items: Ints, *, max_ease_items: int = MAX_EASE_ITEMS, max_neighbours: int = MAX_NEIGHBOURS
) -> Iterator[Neighbours]:
    """Yield the neighbours of every item that shares a user with another, busiest first. Pairs as for `from_pairs`."""
    if not len(items):
        return
    log = InteractionLog.from_pairs(users, items)
    del users, items  # as large as the log, and not needed any more
    busy = min(max_ease_items, len(log))
    weights = ease(_gram(log, busy))
    scale = float(weights.max()) or 1.0
    yield from _rows(log, 0, weights, max_neighbours)
    del weights
    audience = np.diff(log.by_item[0]).astype(np.float32)
    step = max(1, STEP_NUMBERS // len(log))
    for first in range(busy, len(log), step):
        last = min(first + step, len(log))
        cosine = log.shared(first, last, len(log))
        cosine /= np.sqrt(audience[first:last, None] * audience) + SHRINKAGE
        cosine[np.arange(last - first), np.arange(first, last)] = 0
        # A cosine is at most 1, an EASE weight at most `scale`: this makes them comparable.
        yield from _rows(log, first, cosine * scale, max_neighbours)


def ease(gram: Floats, *, ridge: float = RIDGE, dropout: float = DROPOUT) -> Floats:
    """The weights that predict each column from the rows, with a zero diagonal. Overwrites `gram`."""
    diagonal = np.diag_indices_from(gram)
    gram[diagonal] += ridge + dropout / (1 - dropout) * gram[diagonal]
    invert(gram)
    gram /= -gram[diagonal]
    gram[diagonal] = 0
    return gram


def invert(matrix: Floats) -> None:
    """Replace a symmetric, positive definite matrix by its inverse, block by block.

    numpy's inverse uses double precision and three copies: 500 MB for 4,000 × 4,000. This needs a third of the matrix
    in addition.
    """
    size = len(matrix)
    if size <= INVERSE_BLOCK:
        matrix[...] = np.linalg.inv(matrix)
        return
    half = size // 2
    first, across, down, last = matrix[:half, :half], matrix[:half, half:], matrix[half:, :half], matrix[half:, half:]
    invert(first)
    product = first @ across
    last -= down @ product
    invert(last)
    across[...] = product @ last
    across *= -1
    first -= across @ product.T
    down[...] = across.T


def _gram(log: InteractionLog, size: int) -> Floats:
    gram = np.empty((size, size), dtype=np.float32)
    step = max(1, STEP_NUMBERS // size)
    for first in range(0, size, step):
        last = min(first + step, size)
        gram[first:last] = log.shared(first, last, size)
    return gram


def _rows(log: InteractionLog, first: int, weights: Floats, max_neighbours: int) -> Iterator[Neighbours]:
    for row, found in enumerate(weights):
        strength = np.abs(found)
        nearest = (
            np.argpartition(-strength, max_neighbours)[:max_neighbours]
            if max_neighbours < len(found)
            else np.arange(len(found))
        )
        nearest = nearest[strength[nearest] > 0]
        nearest = nearest[np.lexsort((nearest, -strength[nearest]))]
        if len(nearest):
            yield Neighbours(int(log.original[first + row]), log.original[nearest], found[nearest])


def recency(count: int) -> Floats:
    """The weights of a user's challenges by recency, newest first."""
    return np.exp(-RECENCY_DECAY * np.arange(count, dtype=np.float32) / max(count, 1))


def _sorted_pairs(first: Ints, second: Ints, base: int) -> NDArray[np.int64]:
    """Encode pairs as one number each and sort them: fast and with little memory."""
    pairs = first.astype(np.int64)
    pairs *= base
    pairs += second
    pairs.sort()
    return pairs


def _limit_items(users: Ints, items: Ints, user_count: int) -> tuple[Ints, Ints]:
    """Keep each user's busiest items only. Both arrays are sorted by user, then by item."""
    selected = np.arange(len(users)) - _starts(users, user_count)[users] < MAX_ITEMS_PER_USER
    return users[selected], items[selected]


def _starts(sorted_codes: Ints, count: int) -> Ints:
    return np.searchsorted(sorted_codes, np.arange(count + 1))
