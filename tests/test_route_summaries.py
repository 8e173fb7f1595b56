"""Every route summary is an imperative sentence."""

from __future__ import annotations

import inspect

import pytest

from plaza.core.http.routes import Route
from plaza.http_application import route_groups

# The first words that summaries may have. Add one here if a route needs another.
FIRST_WORDS = frozenset(
    [
        "Add",
        "Allow",
        "Ban",
        "Block",
        "Bookmark",
        "Cancel",
        "Change",
        "Check",
        "Comment",
        "Confirm",
        "Copy",
        "Count",
        "Create",
        "Declare",
        "Delete",
        "Dismiss",
        "Disable",
        "Download",
        "Edit",
        "Enable",
        "End",
        "Exchange",
        "Export",
        "Finish",
        "Follow",
        "Get",
        "Import",
        "Issue",
        "Join",
        "Leave",
        "Like",
        "List",
        "Mark",
        "Log",
        "Mute",
        "Order",
        "Post",
        "React",
        "Read",
        "Redirect",
        "Refresh",
        "Register",
        "Remove",
        "Rename",
        "Replace",
        "Reply",
        "Report",
        "Request",
        "Reset",
        "Restore",
        "Revoke",
        "Run",
        "Save",
        "Search",
        "Send",
        "Set",
        "Show",
        "Sign",
        "Start",
        "Stop",
        "Stream",
        "Suggest",
        "Suspend",
        "Switch",
        "Sync",
        "Test",
        "Track",
        "Turn",
        "Unban",
        "Unblock",
        "Undo",
        "Unfollow",
        "Unlike",
        "Unmute",
        "Update",
        "Upload",
        "Verify",
        "Vote",
    ]
)
# A summary is a line in a table; more belongs into the description below it.
MAX_CHARACTERS = 120

ROUTES = [route for group in route_groups() for route in group.routes]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_a_route_summary_is_an_imperative_sentence(route: Route) -> None:
    summary = (inspect.getdoc(route.handler) or "").partition("\n")[0]
    first = summary.partition(" ")[0].strip(".,:;")
    assert first in FIRST_WORDS, f"{summary!r} must start with an imperative such as List, Get, Create or Delete"
    assert len(summary.split()) > 1, f"{summary!r} names no object"
    assert summary.endswith("."), f"{summary!r} must be a complete sentence on one line"
    assert len(summary) <= MAX_CHARACTERS
