"""Splits the log, lets everybody learn from one part, and counts how much of the other part they find.

Recall@10 is the share of a person's held-out items among the ten best scored that they do not have yet; NDCG@10 counts
those near the top for more, against the best order there could be. Both are means over people with anything held out.
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
# A random split is luck to a hundredth: the mean of three is less so.
SEEDS: Final = (0, 1, 2)

Held = NDArray[np.bool_]  # which ratings are held out


@dataclass(frozen=True, slots=True)
class Quality:
    recall: float
    ndcg: float


Results = dict[str, dict[str, Quality]]  # by split, then by contender


def at_random(log: Ratings, seed: int) -> Held:
    """One in five, whoever's and whenever."""
    held = np.zeros(len(log.people), dtype=np.bool_)
    held[np.random.default_rng(seed).permutation(len(held))[: round(len(held) * HELD_OUT)]] = True
    return held


def the_last(log: Ratings) -> Held:
    """Of each person the last fifth."""
    held = np.zeros(len(log.people), dtype=np.bool_)
    for person in range(log.shape[0]):
        mine = np.flatnonzero(log.people == person)
        mine = mine[np.lexsort((log.items[mine], log.times[mine]))]
        held[mine[len(mine) - round(len(mine) * HELD_OUT) :]] = True
    return held


def splits(log: Ratings) -> dict[str, list[Held]]:
    return {
        "random 80/20, mean of three": [at_random(log, seed) for seed in SEEDS],
        "last 20% of each person": [the_last(log)],
    }


def evaluate(
    log: Ratings, contenders: Mapping[str, Contender], progress: Callable[[float], object] = lambda share: None
) -> Results:
    """Everybody on every split. `progress` is told how much is done."""
    found = splits(log)
    runs = len(contenders) * sum(map(len, found.values()))
    results: Results = {}
    done = 0
    for name, splits_ in found.items():
        results[name] = {}
        for contender, learn in contenders.items():
            each = []
            for held in splits_:
                each.append(_one(log, held, learn))
                done += 1
                progress(done / runs)
            results[name][contender] = _mean(each)
    return results


def _one(log: Ratings, held: Held, contender: Contender) -> Quality:
    learn = _part(log, ~held)
    return quality(contender(learn), matrix(learn), matrix(_part(log, held)))


def _mean(found: Sequence[Quality]) -> Quality:
    return Quality(fmean(one.recall for one in found), fmean(one.ndcg for one in found))


def quality(scores: Scores, known: Floats, find: Floats, top: int = TOP) -> Quality:
    """How much of what is to be found the best scored have, beyond what is known."""
    best = np.argsort(np.where(known > 0, np.inf, -scores), axis=1, kind="stable")[:, :top]
    hits = np.take_along_axis(find, best, axis=1) * (np.take_along_axis(known, best, axis=1) == 0)
    sought = find.sum(axis=1).astype(int)
    asked = sought > 0
    worth = 1 / np.log2(np.arange(2, best.shape[1] + 2))
    ideal = np.r_[0, np.cumsum(worth)][np.minimum(sought, best.shape[1])]
    return Quality(
        recall=float((hits.sum(axis=1)[asked] / sought[asked]).mean()),
        ndcg=float(((hits @ worth)[asked] / ideal[asked]).mean()),
    )


def _part(log: Ratings, which: Held) -> Ratings:
    return replace(log, people=log.people[which], items=log.items[which], times=log.times[which])
