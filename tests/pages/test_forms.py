"""A form that was filled in wrongly comes back as it was filled in, and says what is wrong with which field."""

from __future__ import annotations

from typing import NamedTuple

from tests.pages.conftest import Elements, Surfer


class Case(NamedTuple):
    """A form's page and where it goes, what is filled in, and what is wrong with which field."""

    page: str
    path: str
    given: dict[str, str]
    wrong: str
    said: str


CHALLENGE, PROFILE, ARTICLE = (
    ("/app/challenges/new", "/app/challenges"),
    ("/app/profile", "/app/profile"),
    ("/app/articles/new", "/app/articles"),
)
CASES = [
    Case(
        *CHALLENGE,
        {"title": 'Walk "early"', "category": "3", "duration": "0"},
        "duration",
        "For how many days: 1 at least.",
    ),
    Case(
        *CHALLENGE,
        {"title": "Walk", "category": "2", "duration": "many", "is_public": "1"},
        "duration",
        "For how many days: a whole number.",
    ),
    Case(*CHALLENGE, {"category": "4", "duration": "9"}, "title", "Title: this is needed."),
    Case(
        *PROFILE,
        {"display_name": "w" * 201, "bio": "\nI <3 & 'you'", "links": "https://example.org"},
        "display_name",
        "What you are called: 200 characters at most.",
    ),
    Case(
        *PROFILE,
        {"display_name": "Ana", "bio": "w" * 2_001, "links": ""},
        "bio",
        "About you: 2,000 characters at most.",
    ),
    Case(
        *ARTICLE,
        {"title": "A <b>link</b>", "link": "ftp://example.org", "groups": "news"},
        "link",
        "The link must begin with http:// or https://.",
    ),
    Case(
        *ARTICLE,
        {"title": "A link", "link": "https://example.org", "groups": "-x news"},
        "groups",
        "name has 1 to 50 of",
    ),
]


async def test_what_was_filled_in_is_still_there_and_the_wrong_field_is_marked(ana: Surfer) -> None:
    for page, path, given, wrong, said in CASES:
        answer = await ana.fill(path, page=page, **given)
        assert answer.status_code == 422, given
        shown = Elements(answer.text)
        fields = {at["name"]: at for tag, at in shown.found if tag in ("input", "textarea", "select") and "name" in at}
        assert [name for name, at in fields.items() if at.get("aria-invalid") == "true"] == [wrong], given
        assert "problem" in fields[wrong]["aria-describedby"].split()
        assert said in "".join(shown.words)
        require_kept(given, shown, fields)


def require_kept(given: dict[str, str], shown: Elements, fields: dict[str, dict[str, str]]) -> None:
    """Everything that was filled in is there."""
    for name, value in given.items():
        if name == "category":
            assert [at["value"] for tag, at in shown.found if tag == "option" and "selected" in at] == [value]
        elif name in ("bio", "links"):
            assert value in "".join(shown.words)
        elif name != "is_public":
            assert fields[name]["value"] == value
    assert "is_public" not in fields or ("checked" in fields["is_public"]) is ("is_public" in given)
