"""Finds challenges similar to a viewer's own, from the stored model. Needs numpy: the extra `recommend`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.recommendation.neighbours import recency
from plaza.challenges.recommendation.ranking import MAX_SIMILAR, OwnChallenge


def similar_challenges(own: Sequence[OwnChallenge], neighbours: Sequence[str | None]) -> dict[int, OwnChallenge]:
    """The challenges most similar to the viewer's own (newest first), each with the own one that contributes most."""
    found = [(row, index) for index, text in enumerate(neighbours) if (row := _parse_weights(text)) is not None]
    if not found:
        return {}
    ids = np.concatenate([row[::2] for row, _ in found]).astype(np.int64)
    recency_weights = recency(len(own))
    weights = np.concatenate([row[1::2] * recency_weights[index] for row, index in found])
    sources = np.repeat([index for _, index in found], [len(row) // 2 for row, _ in found])
    challenges, code = np.unique(ids, return_inverse=True)
    scores = np.bincount(code, weights)
    # Written in rising order, so the strongest contribution is written last.
    strongest = np.empty(len(challenges), dtype=np.int64)
    rising = np.argsort(weights, kind="stable")
    strongest[code[rising]] = sources[rising]
    new = ~np.isin(challenges, [challenge.id for challenge in own]) & (scores > 0)
    best = np.flatnonzero(new)[np.argsort(-scores[new], kind="stable")][:MAX_SIMILAR]
    return {int(challenges[n]): own[strongest[n]] for n in best}


def _parse_weights(text: str | None) -> NDArray[np.float64] | None:
    """Alternating ids and weights; None if the value is missing or invalid."""
    try:
        row = np.array((text or "").split(), dtype=np.float64)
    except ValueError:
        return None
    return row if len(row) and len(row) % 2 == 0 and np.isfinite(row).all() else None
