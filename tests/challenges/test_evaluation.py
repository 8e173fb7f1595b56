"""The evaluation: its arithmetic on cases done by hand, its methods on made data, and its picture."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from plaza.challenges.recommendation.evaluation import movielens, plot
from plaza.challenges.recommendation.evaluation.contenders import contenders
from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.evaluation.scoring import Quality, at_random, evaluate, quality, the_last
from plaza.core.errors import OperatorError


def test_recall_and_ndcg_as_done_by_hand() -> None:
    scores = np.array([[9, 8, 7, 6, 5], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]], dtype=np.float32)
    known = np.array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=np.float32)
    find = np.array([[0, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=np.float32)
    # The first person's two best are items 1 and 2, for 0 is known: the second of them is right. The second person's
    # best is right. The third has nothing to be found, and does not count.
    second = 1 / math.log2(3)
    found = quality(scores, known, find, top=2)
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    assert found.ndcg == pytest.approx((second / (1 + second) + 1) / 2)
    # Where fewer are left than are asked for, what is known does not come back as found.
    assert quality(scores, known, find, top=5).recall == 1


def circles(people: int = 60, items: int = 24) -> Ratings:
    """Each person goes round in one of three circles of eight items from their own place on, and then anywhere."""
    dice = np.random.default_rng(1)
    rows = []
    for person in range(people):
        begin = int(dice.integers(8))
        rows += [(person, person % 3 * 8 + (begin + step) % 8, step) for step in range(6)]
        rows += [(person, int(item), 99) for item in dice.choice(items, 2)]
    who, what, when = np.array(rows).T
    return Ratings(who, what, when, np.eye(3, dtype=np.bool_)[np.arange(items) // 8])


def test_held_out_is_a_fifth_and_the_last_is_the_last() -> None:
    log = circles()
    assert at_random(log, 1).sum() == round(len(log.people) * 0.2)
    held = the_last(log)
    for person in range(60):
        mine = log.people == person
        assert held[mine].sum() == round(mine.sum() * 0.2)
        assert log.times[mine & held].min() >= log.times[mine & ~held].max()


def test_every_contender_runs_and_ours_finds_what_popularity_cannot() -> None:
    shares: list[float] = []
    results = evaluate(circles(), contenders(), shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    by_name, last = results.values()
    assert set(by_name) == set(last) == set(contenders())
    assert {"documents' rule", "popularity", "item-kNN", "ALS", "ours"} <= set(by_name)
    assert by_name["ours"].recall > by_name["popularity"].recall + 0.2


def test_the_picture_has_a_bar_for_every_number() -> None:
    results = {"a split": {"<ours>": Quality(0.25, 0.45), "popularity": Quality(0.1, 0.2)}}
    drawn = ElementTree.fromstring(plot.svg(results))
    bars = [
        node
        for node in drawn.iter()
        if node.tag.endswith("rect") and node.get("height") == "12" and node.get("y") != "10"
    ]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert len(widths) == 4
    assert widths[1] / widths[0] == pytest.approx(0.45 / 0.25, rel=0.01)
    assert "<ours>" in {node.text for node in drawn.iter()}


def test_a_wheel_that_is_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read"):
        movielens.read(tmp_path / "none.whl")
    (tmp_path / "other.whl").write_bytes(b"something else")
    with pytest.raises(OperatorError, match="is not recbole"):
        movielens.read(tmp_path / "other.whl")
