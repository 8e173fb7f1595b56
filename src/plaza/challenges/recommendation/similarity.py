"""Finds challenges similar to a viewer's own, from the stored model. Needs numpy: the extra `recommend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.recommendation.neighbours import recency
from plaza.challenges.recommendation.ranking import MAX_SIMILAR, OwnChallenge
from plaza.challenges.recommendation.stored_neighbours import decode_neighbours

# Up to this distance between ids, sums are kept in an array with a place for every id, which is faster than sorting.
MAX_DENSE_IDS: Final = 200_000


def similar_challenges(own: Sequence[OwnChallenge], neighbours: Sequence[bytes | None]) -> dict[int, OwnChallenge]:
    """The challenges most similar to the viewer's own (newest first), each with the own one that contributes most."""
    ids, weights, rows = decode_neighbours(neighbours)
    if not len(ids):
        return {}
    weights *= recency(len(own))[rows]
    challenges, codes = _number(ids)
    scores: NDArray[np.float64] = np.bincount(codes, weights, len(challenges)).astype(np.float64, copy=False)
    own_ids = [challenge.id for challenge in own]
    places = np.minimum(np.searchsorted(challenges, own_ids), len(challenges) - 1)
    scores[places[challenges[places] == own_ids]] = 0
    best = _highest(scores, MAX_SIMILAR)
    # What each own challenge contributes to each of the best.
    ranks = np.full(len(challenges), -1)
    ranks[best] = np.arange(len(best))
    entries = np.flatnonzero(ranks[codes] >= 0)
    contributions = np.zeros((len(best), len(own)))
    contributions[ranks[codes[entries]], rows[entries]] = weights[entries]
    strongest = contributions.argmax(axis=1).tolist() if len(best) else []
    return {id: own[place] for id, place in zip(challenges[best].tolist(), strongest, strict=True)}


def _number(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids in rising order, maybe with unused ones, and the place of each id among them."""
    first, last = int(ids.min()), int(ids.max())
    if last - first < MAX_DENSE_IDS:
        return np.arange(first, last + 1), ids - first
    return np.unique(ids, return_inverse=True)


def _highest(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The places of the highest positive scores, highest first."""
    places = np.flatnonzero(scores > 0)
    if len(places) > count:
        places = places[scores[places] >= np.partition(scores[places], -count)[-count]]
    return places[np.argsort(-scores[places], kind="stable")][:count]
