"""The model against its own definition, computed the plain way on data small enough for it."""

from __future__ import annotations

import numpy as np
import pytest

from plaza.challenges.recommendation import neighbours
from plaza.challenges.recommendation.neighbours import DAMPING, HIDDEN, RIDGE, SHRINKAGE, Floats, Ints, fit
from plaza.challenges.recommendation.ranking import Own, alike

PEOPLE, ITEMS = 60, 25


def made_up() -> tuple[Ints, Ints, Floats]:
    """Pairs in no order and some of them twice, and the matrix that they are."""
    dice = np.random.default_rng(3)
    matrix = (dice.random((PEOPLE, ITEMS)) < np.linspace(0.6, 0.05, ITEMS)).astype(np.float32)
    matrix[:, 7] = 0  # an item without anybody
    people, items = np.nonzero(matrix)
    order = dice.permutation(np.r_[np.arange(len(people)), np.arange(20)])
    return people[order], items[order], matrix


def fitted(people: Ints, items: Ints, **limits: int) -> Floats:
    weights = np.zeros((ITEMS, ITEMS), dtype=np.float32)
    for found in fit(people, items, **limits):
        weights[found.item, found.others] = found.weights
        assert list(np.abs(found.weights)) == sorted(np.abs(found.weights), reverse=True)
    return weights


def shared(matrix: Floats) -> Floats:
    weight = np.maximum(matrix.sum(axis=1), 1) ** -DAMPING
    weight *= PEOPLE / weight.sum()
    found: Floats = (matrix * weight[:, None]).T @ matrix
    return found


def in_closed_form(gram: Floats) -> Floats:
    inverse = np.linalg.inv(gram + np.diag(RIDGE + HIDDEN / (1 - HIDDEN) * np.diag(gram)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights.astype(np.float32)


@pytest.mark.parametrize("block", [1, 4, 512])
def test_the_busiest_get_the_weights_of_the_closed_form(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(neighbours, "BLOCK", block)
    people, items, matrix = made_up()
    assert np.allclose(fitted(people, items), in_closed_form(shared(matrix)), atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 40, 500_000])
def test_the_rest_get_the_cosine_of_their_audiences(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(neighbours, "AT_ONCE", at_once)
    people, items, matrix = made_up()
    audience = matrix.sum(axis=0)
    busiest = np.argsort(-audience, kind="stable")[:10]
    rest = np.setdiff1d(np.arange(ITEMS), busiest)
    weights = fitted(people, items, most=10)
    within = in_closed_form(shared(matrix)[np.ix_(busiest, busiest)])
    assert np.allclose(weights[np.ix_(busiest, busiest)], within, atol=1e-6)
    assert not weights[np.ix_(busiest, rest)].any()
    cosine = shared(matrix) / (np.sqrt(np.outer(audience, audience)) + SHRINKAGE)
    np.fill_diagonal(cosine, 0)
    assert np.allclose(weights[rest], cosine[rest] * within.max(), atol=1e-6)


def test_of_each_only_the_strongest_are_kept_and_nothing_comes_of_nothing() -> None:
    people, items, _ = made_up()
    whole, cut = fitted(people, items), fitted(people, items, kept=4)
    for all_, few in zip(whole, cut, strict=True):
        assert set(np.flatnonzero(few)) <= set(np.argsort(-np.abs(all_))[:4])
        assert np.count_nonzero(few) == min(4, np.count_nonzero(all_))
    assert list(fit(people[:0], items[:0])) == []
    assert list(fit(np.array([0]), np.array([0]))) == []


def test_a_person_in_everything_is_no_guide_to_what_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_OF_A_PERSON", 3)
    people = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    items = np.array([0, 1, 2, 3, 4, 0, 1, 0, 2])
    weights = fitted(people, items)
    assert weights[0, 1] > 0
    assert not weights[[3, 4]].any()


def test_what_goes_with_ones_own_is_found_with_what_speaks_for_it_most() -> None:
    run, swim, bake = Own(1, "Run", "joined"), Own(2, "Swim", "reacted in"), Own(3, "Bake", "joined")
    found = alike([run, swim, bake], ["2 0.5 10 0.2 11 0.1 12 -0.4", "10 0.4 12 0.3", None])
    assert list(found) == [10, 11]  # 12 is more against than for; 2 is one's own
    assert found == {10: swim, 11: run}
    assert alike([bake], [None]) == {} == alike([], [])
    for junk in ("", "what is this", "10", "10 0.5 11", "10 nan"):
        assert alike([bake], [junk]) == {}
