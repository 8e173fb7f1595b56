"""Records are exported in an order in which they can be imported."""

from __future__ import annotations

from plaza.community.records import in_thread_order


def test_a_reply_comes_after_its_parent_whatever_their_times_and_ids() -> None:
    comments: dict[str, tuple[int, str | None]] = {
        "c": (5, None),
        "b": (5, "c"),  # in the same millisecond
        "a": (5, "b"),
        "d": (3, "e"),  # older than its parent: another service wrote it
        "e": (9, None),
        "f": (1, "gone"),
    }
    assert in_thread_order(comments) == ["f", "c", "b", "a", "e", "d"]
    assert sorted(in_thread_order({"x": (1, "y"), "y": (1, "x")})) == ["x", "y"], "a cycle ends"
