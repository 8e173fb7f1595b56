"""What is compared: each learns from the same ratings and gives every person a score for every item.

The settings of the peers were looked for as ours were, on held-out parts of the training data, one setting for both
ways of splitting it. They see who rated what; ours also sees in which order, and is shown without that too.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.neighbours import Floats, fit, recency

Scores = Floats  # people × items
Contender = Callable[[Ratings], Scores]

TOP_CATEGORIES = 3


def matrix(log: Ratings) -> Floats:
    """Who rated what, as zeros and ones."""
    taken = np.zeros(log.shape, dtype=np.float32)
    taken[log.people, log.items] = 1
    return taken


def popularity(log: Ratings) -> Scores:
    """What most have, for everybody."""
    return np.tile(np.bincount(log.items, minlength=log.shape[1]).astype(np.float32), (log.shape[0], 1))


def documents_rule(log: Ratings) -> Scores:
    """The popular of the three genres that one has most of: what the documents' keys alone can give."""
    spent = matrix(log) @ log.genres.astype(np.float32)
    favourites = np.zeros_like(spent)
    np.put_along_axis(favourites, np.argsort(-spent, axis=1, kind="stable")[:, :TOP_CATEGORIES], 1, axis=1)
    inside = favourites @ log.genres.T.astype(np.float32) > 0
    return np.where(inside, popularity(log), 0).astype(np.float32)


def item_knn(log: Ratings, nearest: int = 400, shrinkage: float = 10.0) -> Scores:
    """The cosine of two items' audiences, of each item's nearest."""
    taken = matrix(log)
    shared = taken.T @ taken
    size = np.sqrt(np.maximum(np.diag(shared), 1))
    cosine = (shared / (np.outer(size, size) + shrinkage)).astype(np.float32)
    np.fill_diagonal(cosine, 0)
    place = min(nearest, len(cosine)) - 1
    cosine[cosine < -np.partition(-cosine, place, axis=0)[place]] = 0
    return taken @ cosine


def als(log: Ratings, factors: int = 24, regularization: float = 3.0, alpha: float = 2.0) -> Scores:
    """Alternating least squares on implicit feedback (Hu, Koren and Volinsky, 2008), by the package `implicit`."""
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):  # it has threads of its own, and warns of more
        model = AlternatingLeastSquares(factors, regularization, alpha, iterations=15, random_state=0)
        model.fit(csr_matrix(matrix(log)), show_progress=False)
    scores: Scores = model.user_factors @ model.item_factors.T
    return scores


def ours(log: Ratings, *, ordered: bool = True) -> Scores:
    """The model as the daily job fits and keeps it, asked as recommendations ask it."""
    weights = np.zeros((log.shape[1], log.shape[1]), dtype=np.float32)
    for found in fit(log.people, log.items):
        weights[found.item, found.others] = found.weights
    return (_recent(log) if ordered else matrix(log)) @ weights


def _recent(log: Ratings) -> Floats:
    """Who rated what, by how much it speaks for what comes next."""
    taken = np.zeros(log.shape, dtype=np.float32)
    newest = np.lexsort((log.items, -log.times))
    for person in range(log.shape[0]):
        mine = newest[log.people[newest] == person]
        taken[person, log.items[mine]] = recency(len(mine))
    return taken


def contenders() -> dict[str, Contender]:
    """All that can run here; `implicit` is an extra."""
    found: dict[str, Contender] = {
        "documents' rule": documents_rule,
        "popularity": popularity,
        "item-kNN": item_knn,
        "ALS": als,
        "ours, without order": lambda log: ours(log, ordered=False),
        "ours": ours,
    }
    if find_spec("implicit") is None:
        del found["ALS"]
    return found
