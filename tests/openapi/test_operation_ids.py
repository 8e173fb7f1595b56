"""Every operation has a name that a person would choose: `createPost`, an action and its object."""

from __future__ import annotations

import re

import pytest

from plaza.core.http.openapi.operations import operation_id, require_unique_operation_ids
from plaza.core.http.routes import Route
from plaza.http_application import route_groups
from tests.test_route_summaries import FIRST_WORDS

ROUTES = [route for group in route_groups() for route in group.routes if route.in_openapi]

# The first words of operation ids: those of summaries, and some more. Add one here if a route needs another.
ACTIONS = {word.lower() for word in FIRST_WORDS} | {
    "enrol",
    "login",
    "logout",
    "retry",
    "schedule",
    "unbookmark",
    "unsuspend",
}
# Where the action says it all.
ONE_WORD = {"login", "logout", "ping", "register"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_an_operation_id_is_an_action_and_its_object(route: Route) -> None:
    name = operation_id(route)
    action, *rest = re.findall(r"[a-z]+|[A-Z][a-z0-9]*", name)
    place = f"{route.handler.__module__}.{route.handler.__name__}"
    assert name in ONE_WORD or action in ACTIONS, f"{place}: name the handler after an action, such as create_post"
    assert name in ONE_WORD or rest, f"{place}: {name} does not say what it acts on; name the handler as create_post"


def test_operation_ids_are_unique() -> None:
    require_unique_operation_ids(ROUTES)


def test_every_tag_is_described() -> None:
    described = {group.tag for group in route_groups() if group.about}
    missing = {route.tag for route in ROUTES} - described
    assert not missing, f"Routes({missing.pop()!r}) needs `about`, one sentence for the documentation"
