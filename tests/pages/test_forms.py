"""A rejected form comes back with its values, and says which field is wrong."""

from __future__ import annotations

from typing import NamedTuple

from tests.pages.conftest import PageClient, ParsedPage


class Case(NamedTuple):
    """A form's page and action, the submitted values, the wrong field and the error message."""

    page: str
    path: str
    values: dict[str, str]
    wrong_field: str
    message: str


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
        "Duration in days must be at least 1.",
    ),
    Case(
        *CHALLENGE,
        {"title": "Walk", "category": "2", "duration": "many", "is_public": "1"},
        "duration",
        "Duration in days must be a whole number.",
    ),
    Case(*CHALLENGE, {"category": "4", "duration": "9"}, "title", "Title is required."),
    Case(
        *PROFILE,
        {"display_name": "w" * 201, "bio": "\nI <3 & 'you'", "links": "https://example.org"},
        "display_name",
        "Display name must have at most 200 characters.",
    ),
    Case(
        *PROFILE,
        {"display_name": "Ana", "bio": "w" * 2_001, "links": ""},
        "bio",
        "Bio must have at most 2,000 characters.",
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
        "1 to 50",
    ),
]


async def test_a_rejected_form_shows_its_values_and_marks_the_wrong_field(ana: PageClient) -> None:
    for page, path, values, wrong_field, message in CASES:
        response = await ana.submit(path, page=page, **values)
        assert response.status_code == 422, values
        shown = ParsedPage(response.text)
        fields = {
            at["name"]: at for tag, at in shown.elements if tag in ("input", "textarea", "select") and "name" in at
        }
        assert [name for name, at in fields.items() if at.get("aria-invalid") == "true"] == [wrong_field], values
        assert "problem" in fields[wrong_field]["aria-describedby"].split()
        assert message in "".join(shown.texts)
        require_values(values, shown, fields)


def require_values(values: dict[str, str], shown: ParsedPage, fields: dict[str, dict[str, str]]) -> None:
    """Fail unless the form shows every submitted value."""
    for name, value in values.items():
        if name == "category":
            assert [at["value"] for tag, at in shown.elements if tag == "option" and "selected" in at] == [value]
        elif name in ("bio", "links"):
            assert value in "".join(shown.texts)
        elif name != "is_public":
            assert fields[name]["value"] == value
    assert "is_public" not in fields or ("checked" in fields["is_public"]) is ("is_public" in values)
