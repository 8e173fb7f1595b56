"""Which challenges go together, learnt from who takes part in what. Pure arithmetic: no store, no clock.

For the busiest challenges this is EASE (Steck, "Embarrassingly Shallow Autoencoders", 2019): every challenge is
predicted from all others by ridge regression, which has a closed form: one inverse of the matrix of how many people two
challenges share. It beats far larger models on logs like ours, and it explains itself: a weight says how much taking
part in one speaks for the other. The inverse grows with the cube of the number of challenges, so the rest get plain
item-kNN: the cosine of two challenges' audiences, which needs only those that share somebody.

Two things are added to the textbook. Who takes part in everything says little about what goes together, so a person
weighs less the more they do. And a second penalty grows with a challenge's audience, which is what training with
randomly hidden entries comes to (Steck, "Autoencoders that don't overfit towards the Identity", 2020).

Weights below zero are kept: that two challenges share fewer people than their sizes say is knowledge too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float32]

# An inverse of 4,000 × 4,000 takes seconds and 100 MB.
MOST_IN_CLOSED_FORM: Final = 4_000
# What is lost by cutting a row here is 1.5% of the gain over popularity, on the log of `plaza challenges evaluate`.
KEPT: Final = 256
# Found on held-out parts of the training data, split in both ways; anything from 200 to 500 does nearly as well.
RIDGE: Final = 300.0
HIDDEN: Final = 0.33
DAMPING: Final = 0.25
# What one did last counts 1, what one did first 0.6: taste moves, but not overnight.
FADING: Final = 0.5
# Two challenges that share three people of three are no surer than two that share fifty of sixty.
SHRINKAGE: Final = 30.0
# Who takes part in more than this is not a person, or no guide to anybody.
MOST_OF_A_PERSON: Final = 1_000
# What is inverted in one go.
BLOCK: Final = 512
# How many numbers are worked on at a time: memory does not grow with the log, and other threads get their turn.
AT_ONCE: Final = 500_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """An item's nearest, from the strongest weight to the weakest."""

    item: int
    others: Ints
    weights: Floats


@dataclass(frozen=True, slots=True)
class Log:
    """Who takes part in what, in both directions. Items are numbered from the busiest on."""

    original: Ints  # the number that each item had
    weight: Floats  # of each person
    of_person: tuple[Ints, Ints]  # where a person's items begin; the items
    of_item: tuple[Ints, Ints]  # where an item's people begin; the people

    @classmethod
    def of(cls, people: Ints, items: Ints) -> Log:
        """From pairs of numbers, each counted from 0, in any order, also repeated."""
        crowd, size = int(people.max()) + 1, int(items.max()) + 1
        pairs = _sorted_pairs(people, items, size)
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        items = (pairs % size).astype(np.int32)
        audience = np.bincount(items, minlength=size)
        busiest = np.argsort(-audience, kind="stable")
        rank = np.empty(size, dtype=np.int32)
        rank[busiest] = np.arange(size)
        pairs += rank[items] - items
        pairs.sort()
        people, items = _cut((pairs // size).astype(np.int32), (pairs % size).astype(np.int32), crowd)
        del pairs
        original = busiest[: np.count_nonzero(audience)]
        by_item = _sorted_pairs(items, people, crowd)
        item_starts = _starts((by_item // crowd).astype(np.int32), len(original))
        starts = _starts(people, crowd)
        weight = np.maximum(np.diff(starts), 1).astype(np.float32) ** -DAMPING
        weight *= crowd / weight.sum()
        return cls(original, weight, (starts, items), (item_starts, (by_item % crowd).astype(np.int32)))

    def __len__(self) -> int:
        return len(self.original)

    def shared(self, first: int, last: int, width: int) -> Floats:
        """How many people, by weight, items `first` to `last` share with each of the first `width` items."""
        starts, people = self.of_item
        found = np.zeros((last - first) * width, dtype=np.float32)
        who = people[starts[first] : starts[last]]
        rows = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
        for begin, end in self._steps(who):
            row, column, weight = self._expanded(rows[begin:end], who[begin:end])
            inside = column < width
            np.add.at(found, row[inside] * width + column[inside], weight[inside])
        return found.reshape(last - first, width)

    def _steps(self, who: Ints) -> Iterator[tuple[int, int]]:
        """Stretches of people whose items together are few enough to lay out."""
        ends = np.cumsum(np.diff(self.of_person[0])[who])
        begin, done = 0, 0
        while begin < len(who):
            end = max(begin + 1, int(np.searchsorted(ends, done + AT_ONCE, side="right")))
            yield begin, end
            begin, done = end, int(ends[end - 1])

    def _expanded(self, rows: Ints, who: Ints) -> tuple[Ints, Ints, Floats]:
        """For each row and its person: all of the person's items."""
        starts, items = self.of_person
        sizes = starts[who + 1] - starts[who]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return (
            np.repeat(rows, sizes),
            items[np.repeat(starts[who], sizes) + offsets],
            np.repeat(self.weight[who], sizes),
        )


def fit(people: Ints, items: Ints, *, most: int = MOST_IN_CLOSED_FORM, kept: int = KEPT) -> Iterator[Neighbours]:
    """The nearest of every item that shares anybody with another, the busiest first. Pairs as `Log.of` takes them."""
    if not len(items):
        return
    log = Log.of(people, items)
    del people, items  # as large as the log, and not needed while it is worked on
    busy = min(most, len(log))
    weights = ease(_gram(log, busy))
    scale = float(weights.max()) or 1.0
    yield from _rows(log, 0, weights, kept)
    del weights
    audience = np.diff(log.of_item[0]).astype(np.float32)
    step = max(1, AT_ONCE // len(log))
    for first in range(busy, len(log), step):
        last = min(first + step, len(log))
        cosine = log.shared(first, last, len(log))
        cosine /= np.sqrt(audience[first:last, None] * audience) + SHRINKAGE
        cosine[np.arange(last - first), np.arange(first, last)] = 0
        # A cosine is at most 1 where a weight of EASE is at most `scale`: so neither drowns the other.
        yield from _rows(log, first, cosine * scale, kept)


def ease(gram: Floats, *, ridge: float = RIDGE, hidden: float = HIDDEN) -> Floats:
    """The weights by which each column is predicted from the rows; of itself, nothing. Takes the place of `gram`."""
    diagonal = np.diag_indices_from(gram)
    gram[diagonal] += ridge + hidden / (1 - hidden) * gram[diagonal]
    invert(gram)
    gram /= -gram[diagonal]
    gram[diagonal] = 0
    return gram


def invert(matrix: Floats) -> None:
    """Replace a symmetric, positive definite matrix by its inverse, block by block.

    numpy's own inverse works in double precision and in three copies: half a gigabyte for 4,000 × 4,000, where this
    needs a third of the matrix beside it.
    """
    size = len(matrix)
    if size <= BLOCK:
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


def _gram(log: Log, size: int) -> Floats:
    gram = np.empty((size, size), dtype=np.float32)
    step = max(1, AT_ONCE // size)
    for first in range(0, size, step):
        last = min(first + step, size)
        gram[first:last] = log.shared(first, last, size)
    return gram


def _rows(log: Log, first: int, weights: Floats, kept: int) -> Iterator[Neighbours]:
    for row, found in enumerate(weights):
        strength = np.abs(found)
        nearest = np.argpartition(-strength, kept)[:kept] if kept < len(found) else np.arange(len(found))
        nearest = nearest[strength[nearest] > 0]
        nearest = nearest[np.lexsort((nearest, -strength[nearest]))]
        if len(nearest):
            yield Neighbours(int(log.original[first + row]), log.original[nearest], found[nearest])


def recency(count: int) -> Floats:
    """How much each thing that a person did speaks for what comes next, the newest first."""
    return np.exp(-FADING * np.arange(count, dtype=np.float32) / max(count, 1))


def _sorted_pairs(first: Ints, second: Ints, base: int) -> NDArray[np.int64]:
    """Pairs as one number each, so that they sort fast and in little memory."""
    pairs = first.astype(np.int64)
    pairs *= base
    pairs += second
    pairs.sort()
    return pairs


def _cut(people: Ints, items: Ints, crowd: int) -> tuple[Ints, Ints]:
    """Of each person only the busiest items; both are sorted by person, then by item."""
    few = np.arange(len(people)) - _starts(people, crowd)[people] < MOST_OF_A_PERSON
    return people[few], items[few]


def _starts(sorted_codes: Ints, count: int) -> Ints:
    return np.searchsorted(sorted_codes, np.arange(count + 1))
