"""Splits the data, trains every method on one part, and measures how much of the other part it finds.

Recall@10 is the share of a user's held-out items among the ten items with the highest scores that the user has not
rated. NDCG@10 weighs items near the top more, relative to the best possible order. Both are means over users with
held-out items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.recommendation.evaluation.contenders import Contender, Scores, matrix
from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.neighbours import Floats

TOP: Final = 10
HELD_OUT: Final = 0.2
# A random split varies by about 0.01; the mean of three varies less.
SEEDS: Final = (0, 1, 2)

HeldOut = NDArray[np.bool_]  # per rating: whether it is held out


@dataclass(frozen=True, slots=True)
class Quality:
    recall: float
    ndcg: float


Results = dict[str, dict[str, Quality]]  # by split, then by contender


def random_fifth(log: Ratings, seed: int) -> HeldOut:
    """A random fifth of all ratings."""
    held = np.zeros(len(log.users), dtype=np.bool_)
    held[np.random.default_rng(seed).permutation(len(held))[: round(len(held) * HELD_OUT)]] = True
    return held


def last_fifth(log: Ratings) -> HeldOut:
    """The last fifth of each user's ratings."""
    held = np.zeros(len(log.users), dtype=np.bool_)
    for user in range(log.shape[0]):
        own = np.flatnonzero(log.users == user)
        own = own[np.lexsort((log.items[own], log.times[own]))]
        held[own[len(own) - round(len(own) * HELD_OUT) :]] = True
    return held


def splits(log: Ratings) -> dict[str, list[HeldOut]]:
    return {
        "random 80/20, mean of three": [random_fifth(log, seed) for seed in SEEDS],
        "last 20% of each user": [last_fifth(log)],
    }


def evaluate(
    log: Ratings, contenders: Mapping[str, Contender], progress: Callable[[float], object] = lambda share: None
) -> Results:
    """Evaluate every method on every split. `progress` gets the share that is done."""
    found = splits(log)
    runs = len(contenders) * sum(map(len, found.values()))
    results: Results = {}
    done = 0
    for name, splits_ in found.items():
        results[name] = {}
        for contender, learn in contenders.items():
            each = []
            for held in splits_:
                each.append(_evaluate_split(log, held, learn))
                done += 1
                progress(done / runs)
            results[name][contender] = _mean(each)
    return results


def _evaluate_split(log: Ratings, held: HeldOut, contender: Contender) -> Quality:
    learn = _part(log, ~held)
    return quality(contender(learn), matrix(learn), matrix(_part(log, held)))


def _mean(found: Sequence[Quality]) -> Quality:
    return Quality(fmean(quality.recall for quality in found), fmean(quality.ndcg for quality in found))


def quality(scores: Scores, known: Floats, find: Floats, top: int = TOP) -> Quality:
    """The quality of the `top` highest scores per user: which held-out items (`find`) they have, without known ones."""
    best = np.argsort(np.where(known > 0, np.inf, -scores), axis=1, kind="stable")[:, :top]
    hits = np.take_along_axis(find, best, axis=1) * (np.take_along_axis(known, best, axis=1) == 0)
    wanted = find.sum(axis=1).astype(int)
    counted = wanted > 0
    discount = 1 / np.log2(np.arange(2, best.shape[1] + 2))
    ideal = np.r_[0, np.cumsum(discount)][np.minimum(wanted, best.shape[1])]
    return Quality(
        recall=float((hits.sum(axis=1)[counted] / wanted[counted]).mean()),
        ndcg=float(((hits @ discount)[counted] / ideal[counted]).mean()),
    )


def _part(log: Ratings, selected: HeldOut) -> Ratings:
    return replace(log, users=log.users[selected], items=log.items[selected], times=log.times[selected])
