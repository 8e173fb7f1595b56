"""Splits the data, trains every method on one part, and measures how much of the other part it finds.

Recall@10 is the share of a user's held-out items among the ten items with the highest scores that the user has not
rated. NDCG@10 weighs items near the top more, relative to the best possible order. Both are means over users with
held-out items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
Split = Callable[[Ratings], tuple[Ratings, Ratings]]  # the ratings to learn from, and those to find


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


def newcomers(log: Ratings) -> tuple[Ratings, Ratings]:
    """The last fifth of the users to arrive, and the ratings before the first of them did."""
    arrival = np.full(log.shape[0], np.iinfo(np.int64).max)
    np.minimum.at(arrival, log.users, log.times)
    known = np.sort(arrival[arrival < np.iinfo(np.int64).max])
    begins = known[round(len(known) * (1 - HELD_OUT))]
    return part(log, log.times < begins), part(log, arrival[log.users] >= begins)


def _held_out(choose: Callable[[Ratings], HeldOut]) -> Split:
    def split(log: Ratings) -> tuple[Ratings, Ratings]:
        held = choose(log)
        return part(log, ~held), part(log, held)

    return split


HISTORY_SPLITS: Final[Mapping[str, Sequence[Split]]] = {
    "random 80/20, mean of three": [_held_out(partial(random_fifth, seed=seed)) for seed in SEEDS],
    "last 20% of each user": [_held_out(last_fifth)],
}
NEWCOMER_SPLITS: Final[Mapping[str, Sequence[Split]]] = {"newcomers: the last 20% of users": [newcomers]}


def evaluate(
    log: Ratings,
    contenders: Mapping[str, Contender],
    splits: Mapping[str, Sequence[Split]] = HISTORY_SPLITS,
    progress: Callable[[float], object] = lambda share: None,
) -> Results:
    """Evaluate every method on every split. `progress` gets the share that is done."""
    runs = len(contenders) * sum(map(len, splits.values()))
    results: Results = {}
    done = 0
    for name, each_split in splits.items():
        results[name] = {}
        for contender, learn in contenders.items():
            each = []
            for split in each_split:
                each.append(_evaluate_split(*split(log), learn))
                done += 1
                progress(done / runs)
            results[name][contender] = _mean(each)
    return results


def _evaluate_split(known: Ratings, find: Ratings, contender: Contender) -> Quality:
    return quality(contender(known), matrix(known), matrix(find))


def validation(split: Split) -> Split:
    """The same split of the part to learn from: what settings are chosen by, before the other part is seen."""
    return lambda log: split(split(log)[0])


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


def part(log: Ratings, selected: HeldOut) -> Ratings:
    return replace(log, users=log.users[selected], items=log.items[selected], times=log.times[selected])
