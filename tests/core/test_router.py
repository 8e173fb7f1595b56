"""Routing: the right route, at a bounded cost."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin

import pytest

from plaza.core.http.router import Router, TreeNode, decode_segment, encode_segment


class CountingDict(dict[str, TreeNode[str]]):
    """A node's literals, with a count of lookups."""

    count = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountingDict.count += 1
        return super().get(key, default)


def count_lookups(router: Router[str], path: str) -> int:
    waiting = [router.root]
    while waiting:
        node = waiting.pop()
        node.literals = CountingDict(node.literals)
        waiting += [*node.literals.values(), *([node.parameter] if node.parameter else [])]
    CountingDict.count = 0
    assert router.find(path) is not None
    return CountingDict.count


def make_router(nouns: int) -> Router[str]:
    router: Router[str] = Router()
    for i in range(nouns):
        for template in (f"/noun{i}", f"/noun{i}/{{id}}", f"/noun{i}/{{id}}/parts", f"/noun{i}/new/parts"):
            router.add("GET", template, template)
    return router


def test_the_cost_of_finding_a_route_does_not_grow_with_the_number_of_routes() -> None:
    few, many = make_router(3), make_router(3_000)
    for path in ("/noun2", "/noun2/7", "/noun2/7/parts", "/noun2/new/parts"):
        assert count_lookups(few, path) == count_lookups(many, path) <= path.count("/")


def test_an_ambiguous_path_is_searched_in_bounded_steps() -> None:
    router: Router[str] = Router()
    for number in range(2**6):  # literal or parameter at each of six levels, in all ways
        segments = [f"{{p{i}}}" if number >> i & 1 else "a" for i in range(6)]
        router.add("GET", "/" + "/".join(segments), "x")
    assert router.find("/a/a/a/a/a/a") is not None
    assert router.find("/a/a/a/a/a/a/b") is None
    assert count_lookups(router, "/a/b/a/b/a/b") <= 2**6


def test_values_come_in_the_order_of_the_path() -> None:
    router: Router[str] = Router()
    router.add("PUT", "/articles/{id}/groups/{name}", "x")
    found = router.find("/articles/7/groups/a%2Fb")
    assert found is not None
    leaf, values = found
    assert (leaf.template, leaf.names, values) == ("/articles/{id}/groups/{name}", ("id", "name"), ["7", "a%2Fb"])


@pytest.mark.parametrize("value", [".", "..", "~.", "~~..", "...", "~", "~a", "a/b", "50%", "é #?", "~%2e"])
def test_any_value_survives_as_a_segment_also_dots(value: str) -> None:
    segment = encode_segment(value)
    assert "/" not in segment
    assert urljoin("http://plaza/users/ana", segment) == f"http://plaza/users/{segment}", "as clients resolve it"
    assert decode_segment(segment) == value
    assert decode_segment(segment.replace(".", "%2e").replace("~", "%7E")) == value


def test_a_value_of_a_failed_branch_is_dropped() -> None:
    router: Router[str] = Router()
    router.add("GET", "/a/{x}/c/d", "literal first")
    router.add("GET", "/{y}/b/{z}/e", "parameter")
    found = router.find("/a/b/c/e")
    assert found is not None
    assert (found[0].methods, found[1]) == ({"GET": "parameter"}, ["a", "c"])


@pytest.mark.parametrize("template", ["/a/{b}c", "/a/{b", "/a/{}", "/{a}{b}"])
def test_an_invalid_template_is_refused_at_start(template: str) -> None:
    with pytest.raises(AssertionError):
        Router[str]().add("GET", template, "x")


def test_two_routes_for_one_method_and_path_are_refused_at_start() -> None:
    router: Router[str] = Router()
    router.add("GET", "/a/{b}", "x")
    router.add("POST", "/a/{b}", "x")
    with pytest.raises(AssertionError, match="twice"):
        router.add("GET", "/a/{b}", "y")
    with pytest.raises(AssertionError, match="same path"):
        router.add("PUT", "/a/{c}", "y")


def test_a_parameter_with_an_extension_wins_over_one_without() -> None:
    router: Router[str] = Router()
    for template in ("/users/{username}", "/users/{username}.atom", "/users/me", "/users/{username}/posts"):
        router.add("GET", template, template)
    expected = {
        "/users/ana.atom": ("/users/{username}.atom", ["ana"]),
        "/users/ana.b.atom": ("/users/{username}.atom", ["ana.b"]),
        "/users/ana": ("/users/{username}", ["ana"]),
        "/users/ana%2Eatom": ("/users/{username}", ["ana%2Eatom"]),
        "/users/.atom": ("/users/{username}", [".atom"]),
        "/users/ana.atom/posts": ("/users/{username}/posts", ["ana.atom"]),
        "/users/me": ("/users/me", []),
    }
    for path, (template, values) in expected.items():
        found = router.find(path)
        assert found is not None, path
        assert (found[0].template, found[1]) == (template, values)
