"""The model equals its definition, computed in a simple way on small data."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from plaza.challenges.recommendation import neighbours
from plaza.challenges.recommendation.neighbours import DAMPING, DROPOUT, RIDGE, SHRINKAGE, Floats, Ints, fit
from plaza.challenges.recommendation.ranking import MAX_SIMILAR, OwnChallenge
from plaza.challenges.recommendation.similarity import similar_challenges
from plaza.challenges.recommendation.stored_neighbours import encode_neighbours

USERS, ITEMS = 60, 25


def sample_log() -> tuple[Ints, Ints, Floats]:
    """Pairs in random order, some of them twice, and their matrix."""
    rng = np.random.default_rng(3)
    matrix = (rng.random((USERS, ITEMS)) < np.linspace(0.6, 0.05, ITEMS)).astype(np.float32)
    matrix[:, 7] = 0  # an item without users
    users, items = np.nonzero(matrix)
    order = rng.permutation(np.r_[np.arange(len(users)), np.arange(20)])
    return users[order], items[order], matrix


def fit_matrix(users: Ints, items: Ints, **limits: int) -> Floats:
    weights = np.zeros((ITEMS, ITEMS), dtype=np.float32)
    for found in fit(users, items, **limits):
        weights[found.item, found.others] = found.weights
        assert list(np.abs(found.weights)) == sorted(np.abs(found.weights), reverse=True)
    return weights


def shared(matrix: Floats) -> Floats:
    weight = np.maximum(matrix.sum(axis=1), 1) ** -DAMPING
    weight *= USERS / weight.sum()
    found: Floats = (matrix * weight[:, None]).T @ matrix
    return found


def ease_by_definition(gram: Floats) -> Floats:
    inverse = np.linalg.inv(gram + np.diag(RIDGE + DROPOUT / (1 - DROPOUT) * np.diag(gram)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights.astype(np.float32)


@pytest.mark.parametrize("block", [1, 4, 512])
def test_the_busiest_items_get_ease_weights(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(neighbours, "INVERSE_BLOCK", block)
    users, items, matrix = sample_log()
    assert np.allclose(fit_matrix(users, items), ease_by_definition(shared(matrix)), atol=1e-6)


@pytest.mark.parametrize("step_numbers", [1, 40, 500_000])
def test_the_other_items_get_cosine_similarities(monkeypatch: pytest.MonkeyPatch, step_numbers: int) -> None:
    monkeypatch.setattr(neighbours, "STEP_NUMBERS", step_numbers)
    users, items, matrix = sample_log()
    audience = matrix.sum(axis=0)
    busiest = np.argsort(-audience, kind="stable")[:10]
    rest = np.setdiff1d(np.arange(ITEMS), busiest)
    weights = fit_matrix(users, items, max_ease_items=10)
    within = ease_by_definition(shared(matrix)[np.ix_(busiest, busiest)])
    assert np.allclose(weights[np.ix_(busiest, busiest)], within, atol=1e-6)
    assert not weights[np.ix_(busiest, rest)].any()
    cosine = shared(matrix) / (np.sqrt(np.outer(audience, audience)) + SHRINKAGE)
    np.fill_diagonal(cosine, 0)
    assert np.allclose(weights[rest], cosine[rest] * within.max(), atol=1e-6)


def test_only_the_strongest_neighbours_are_stored_and_an_empty_log_gives_none() -> None:
    users, items, _ = sample_log()
    complete, limited = fit_matrix(users, items), fit_matrix(users, items, max_neighbours=4)
    for all_, few in zip(complete, limited, strict=True):
        assert set(np.flatnonzero(few)) <= set(np.argsort(-np.abs(all_))[:4])
        assert np.count_nonzero(few) == min(4, np.count_nonzero(all_))
    assert list(fit(users[:0], items[:0])) == []
    assert list(fit(np.array([0]), np.array([0]))) == []


def test_only_a_users_busiest_items_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_ITEMS_PER_USER", 3)
    users = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    items = np.array([0, 1, 2, 3, 4, 0, 1, 0, 2])
    weights = fit_matrix(users, items)
    assert weights[0, 1] > 0
    assert not weights[[3, 4]].any()


RUN, SWIM, BAKE = (
    OwnChallenge(1, "Run", "joined"),
    OwnChallenge(2, "Swim", "reacted in"),
    OwnChallenge(3, "Bake", "joined"),
)


def stored(*pairs: tuple[int, float]) -> bytes:
    ids, weights = zip(*pairs, strict=True)
    return encode_neighbours(np.array(ids), np.array(weights, dtype=np.float32))


@pytest.mark.parametrize("first", [10, 2**32, 2**52])  # near ids, ids of eight bytes, and ids far from each other
def test_similar_challenges_come_with_the_strongest_own_challenge(first: int) -> None:
    values = [
        stored((2, 0.5), (first, 0.2), (11, 0.1), (first + 2, -0.4)),
        stored((first, 0.4), (first + 2, 0.3)),
        None,
    ]
    found = similar_challenges([RUN, SWIM, BAKE], values)
    assert list(found) == [first, 11]  # `first + 2` has a negative sum; 2 is an own challenge
    assert found == {first: SWIM, 11: RUN}
    assert similar_challenges([BAKE], [None]) == {} == similar_challenges([], [])


def test_only_the_most_similar_challenges_are_found() -> None:
    values = [stored(*((id, id / 1_000) for id in range(10, 200)))]
    assert list(similar_challenges([RUN], values)) == list(range(199, 199 - MAX_SIMILAR, -1))


def test_text_of_earlier_versions_is_read_and_invalid_values_are_ignored() -> None:
    """Rows of both forms count together while the daily job replaces them."""
    found = similar_challenges([RUN, SWIM], [b"10 0.2 11 0.1", stored((10, 0.8))])
    assert found == {10: SWIM, 11: RUN}
    infinite = stored((10, float("inf")), (11, float("nan")))
    for junk in (
        b"",
        b"not a number",
        b"10",
        b"10 0.5 11",
        b"10 nan",
        b"\x04",
        b"\x04123",
        b"\x05" + bytes(8),
        infinite,
    ):
        assert similar_challenges([BAKE], [junk]) == {}


def test_stored_neighbours_are_pairs_that_any_client_can_unpack() -> None:
    assert list(struct.iter_unpack("<If", stored((7, 0.5), (9, -0.25))[1:])) == [(7, 0.5), (9, -0.25)]
    assert list(struct.iter_unpack("<Qf", stored((2**40, 0.5))[1:])) == [(2**40, 0.5)]
