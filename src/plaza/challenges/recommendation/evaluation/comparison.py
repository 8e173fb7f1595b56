"""The comparison that `plaza challenges evaluate` prints: every split with its methods, and what users are served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from plaza.challenges.recommendation.evaluation.contenders import contenders, newcomer_contenders
from plaza.challenges.recommendation.evaluation.experiment import (
    HISTORY_SPLITS,
    NEWCOMER_SPLITS,
    Results,
    evaluate,
    validation,
)
from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.evaluation.served import ServedRecommendations, Variety

SERVED = "Plaza, as served"


@dataclass(slots=True)
class Comparison:
    results: Results = field(default_factory=dict)
    varieties: dict[str, list[Variety]] = field(default_factory=dict)


def compare(log: Ratings, *, validate: bool, progress: Callable[[str, float], object]) -> Comparison:
    """Evaluate all methods on all splits; with `validate`, on held-out parts of what the splits learn from."""
    found = Comparison()
    for splits, methods in ((HISTORY_SPLITS, contenders()), (NEWCOMER_SPLITS, newcomer_contenders())):
        for name, each in splits.items():
            served = ServedRecommendations()
            selected = [validation(split) for split in each] if validate else each
            show = lambda share, name=name: progress(name, share)  # noqa: E731
            found.results |= evaluate(log, {**methods, SERVED: served}, {name: selected}, show)
            found.varieties[name] = served.varieties
    return found
