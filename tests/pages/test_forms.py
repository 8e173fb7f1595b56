"""A form that was filled in wrongly comes back as it was filled in, and says what is wrong with which field."""

from __future__ import annotations

import pytest

from tests.pages.conftest import Elements, Surfer

LONG = "w" * 201


@pytest.mark.parametrize(
    ("page", "path", "given", "wrong", "said"),
    [
        (
            "/app/challenges/new",
            "/app/challenges",
            {"title": 'Walk "early"', "category": "3", "duration": "0"},
            "duration",
            "For how many days: 1 at least.",
        ),
        (
            "/app/challenges/new",
            "/app/challenges",
            {"title": "Walk", "category": "2", "duration": "many", "is_public": "1"},
            "duration",
            "For how many days: a whole number.",
        ),
        (
            "/app/challenges/new",
            "/app/challenges",
            {"category": "4", "duration": "9"},
            "title",
            "Title: this is needed.",
        ),
        (
            "/app/profile",
            "/app/profile",
            {"display_name": LONG, "bio": "\nI <3 & 'you'", "links": "https://example.org"},
            "display_name",
            "What you are called: 200 characters at most.",
        ),
        (
            "/app/profile",
            "/app/profile",
            {"display_name": "Ana", "bio": "w" * 2_001, "links": ""},
            "bio",
            "About you: 2,000 characters at most.",
        ),
        (
            "/app/articles/new",
            "/app/articles",
            {"title": "A <b>link</b>", "link": "ftp://example.org", "groups": "news"},
            "link",
            "The link must begin with http:// or https://.",
        ),
        (
            "/app/articles/new",
            "/app/articles",
            {"title": "A link", "link": "https://example.org", "groups": "-x news"},
            "groups",
            "name has 1 to 50 of",
        ),
    ],
    ids=["few days", "words for a number", "no title", "a long name", "a long text", "a link", "a group"],
)
async def test_what_was_filled_in_is_still_there_and_the_wrong_field_is_marked(
    ana: Surfer, page: str, path: str, given: dict[str, str], wrong: str, said: str
) -> None:
    answer = await ana.fill(path, page=page, **given)
    assert answer.status_code == 422
    shown = Elements(answer.text)
    fields = {at["name"]: at for tag, at in shown.found if tag in ("input", "textarea", "select") and "name" in at}
    assert [name for name, at in fields.items() if at.get("aria-invalid") == "true"] == [wrong]
    assert "problem" in fields[wrong]["aria-describedby"].split()
    words = "".join(shown.words)
    assert said in words
    for name, value in given.items():
        if name == "category":
            assert [at["value"] for tag, at in shown.found if tag == "option" and "selected" in at] == [value]
        elif name in ("bio", "links"):
            assert value in words
        elif name != "is_public":
            assert fields[name]["value"] == value
    assert "is_public" not in fields or ("checked" in fields["is_public"]) is ("is_public" in given)
