"""The compared methods: each learns from the same ratings and returns a score for every user and item.

All methods were tuned in the same way, on held-out parts of the training data, with one setting for both splits. The
others use who rated what; Plaza's model also uses the order, and is measured without it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.neighbours import Floats, fit, recency
from plaza.challenges.recommendation.popular_posts import TREND_DAYS

Scores = Floats  # users × items
Contender = Callable[[Ratings], Scores]

TOP_CATEGORIES = 3
DAY_SECONDS = 86_400


def matrix(log: Ratings) -> Floats:
    """A matrix of users × items: 1 where a user rated an item."""
    rated = np.zeros(log.shape, dtype=np.float32)
    rated[log.users, log.items] = 1
    return rated


def popularity(log: Ratings) -> Scores:
    """The most rated items, the same for every user."""
    return np.tile(np.bincount(log.items, minlength=log.shape[1]).astype(np.float32), (log.shape[0], 1))


def trend(log: Ratings) -> Scores:
    """The items most rated in the last 30 days, the same for every user."""
    recent = log.times > log.times.max() - TREND_DAYS * DAY_SECONDS
    return popularity(replace(log, users=log.users[recent], items=log.items[recent], times=log.times[recent]))


def document_rule(log: Ratings) -> Scores:
    """Popular items of the user's three main genres: what the document's keys alone allow."""
    per_genre = matrix(log) @ log.genres.astype(np.float32)
    favourites = np.zeros_like(per_genre)
    np.put_along_axis(favourites, np.argsort(-per_genre, axis=1, kind="stable")[:, :TOP_CATEGORIES], 1, axis=1)
    matching = favourites @ log.genres.T.astype(np.float32) > 0
    return np.where(matching, popularity(log), 0).astype(np.float32)


def item_knn(log: Ratings, nearest: int = 400, shrinkage: float = 10.0) -> Scores:
    """Item-based nearest neighbours by the cosine similarity of two items' users."""
    rated = matrix(log)
    shared = rated.T @ rated
    size = np.sqrt(np.maximum(np.diag(shared), 1))
    cosine = (shared / (np.outer(size, size) + shrinkage)).astype(np.float32)
    np.fill_diagonal(cosine, 0)
    index = min(nearest, len(cosine)) - 1
    cosine[cosine < -np.partition(-cosine, index, axis=0)[index]] = 0
    return rated @ cosine


def als(log: Ratings, factors: int = 24, regularization: float = 3.0, alpha: float = 2.0) -> Scores:
    """Alternating least squares on implicit feedback (Hu, Koren and Volinsky, 2008), from the package `implicit`."""
    # Imported here: they are in the extra `evaluate`, which only this method needs.
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):  # it uses its own threads and warns about more
        model = AlternatingLeastSquares(factors, regularization, alpha, iterations=15, random_state=0)
        model.fit(csr_matrix(matrix(log)), show_progress=False)
    scores: Scores = model.user_factors @ model.item_factors.T
    return scores


def plaza_model(log: Ratings, *, ordered: bool = True) -> Scores:
    """Plaza's model as the daily job trains and stores it, and as recommendations use it."""
    weights = np.zeros((log.shape[1], log.shape[1]), dtype=np.float32)
    for found in fit(log.users, log.items):
        weights[found.item, found.others] = found.weights
    return (_recency_matrix(log) if ordered else matrix(log)) @ weights


def _recency_matrix(log: Ratings) -> Floats:
    """As `matrix`, with the weights of `recency`."""
    weighted = np.zeros(log.shape, dtype=np.float32)
    newest = np.lexsort((log.items, -log.times))
    for user in range(log.shape[0]):
        own = newest[log.users[newest] == user]
        weighted[user, log.items[own]] = recency(len(own))
    return weighted


def contenders() -> dict[str, Contender]:
    """All methods that can run here; ALS needs the extra `plaza[evaluate]`."""
    found: dict[str, Contender] = {
        "document's rule": document_rule,
        "popularity": popularity,
        "item-kNN": item_knn,
        "ALS": als,
        "Plaza's model, without order": lambda log: plaza_model(log, ordered=False),
        "Plaza's model": plaza_model,
    }
    if find_spec("implicit") is None:
        del found["ALS"]
    return found


def newcomer_contenders() -> dict[str, Contender]:
    """The methods that need no ratings of a user."""
    return {"popularity": popularity, "popularity, 30 days": trend}
