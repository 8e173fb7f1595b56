"""The stored form of a challenge's neighbours: bytes, so that a hundred values are decoded in one step.

The first byte is the size of an id, 4 or 8. Then follow pairs of an id (unsigned) and a weight (single precision),
both little-endian, strongest first. Values of earlier versions are read too, until the daily job replaces them: text,
which begins with a digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.recommendation.neighbours import Floats, Ints

# By the size of an id.
_PAIRS: Final = {size: np.dtype([("id", f"<u{size}"), ("weight", "<f4")]) for size in (4, 8)}


class WeightedNeighbours(NamedTuple):
    """The neighbours of several challenges as parallel arrays."""

    ids: NDArray[np.int64]
    weights: NDArray[np.float64]
    rows: Ints  # which challenge each neighbour belongs to


def encode_neighbours(ids: Ints, weights: Floats) -> bytes:
    """The value to store for one challenge."""
    size = 4 if ids.max(initial=0) < 2**32 else 8
    pairs = np.empty(len(ids), dtype=_PAIRS[size])
    pairs["id"], pairs["weight"] = ids, weights
    return bytes([size]) + pairs.tobytes()


def decode_neighbours(values: Sequence[bytes | None]) -> WeightedNeighbours:
    """The neighbours in these values. Missing and invalid values have none."""
    parts = [_decode_text(values)]
    for size, pair in _PAIRS.items():
        rows = [n for n, value in enumerate(values) if value and value[0] == size and len(value) % pair.itemsize == 1]
        found = np.frombuffer(b"".join([values[n][1:] for n in rows]), dtype=pair)  # type: ignore[index]
        lengths = [len(values[n]) // pair.itemsize for n in rows]  # type: ignore[arg-type]
        parts.append(_finite(found["id"], found["weight"], np.repeat(np.array(rows, dtype=np.int64), lengths)))
    filled = [part for part in parts if len(part.ids)] or parts[:1]
    return filled[0] if len(filled) == 1 else WeightedNeighbours(*map(np.concatenate, zip(*filled, strict=True)))


def _decode_text(values: Sequence[bytes | None]) -> WeightedNeighbours:
    """The neighbours in values of earlier versions: alternating ids and weights, separated by spaces."""
    numbers: list[float] = []
    rows: list[int] = []
    for row, value in enumerate(values):
        if value and value[:1].isdigit():
            try:
                found = [float(part) for part in value.split()]
            except ValueError:
                continue
            if len(found) % 2 == 0 and all(map(isfinite, found)):
                numbers += found
                rows += [row] * (len(found) // 2)
    pairs = np.array(numbers).reshape(-1, 2)
    return _finite(pairs[:, 0], pairs[:, 1], np.array(rows, dtype=np.int64))


def _finite(ids: NDArray[np.generic], weights: NDArray[np.generic], rows: Ints) -> WeightedNeighbours:
    """These neighbours as numbers, without those that another service made infinite."""
    found = WeightedNeighbours(ids.astype(np.int64), weights.astype(np.float64), rows)
    finite = np.isfinite(found.weights)
    return found if finite.all() else WeightedNeighbours(found.ids[finite], found.weights[finite], rows[finite])
