"""The schemas of the OpenAPI document as other tools read them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from plaza.docgen import openapi_document
from tests.timeouts import TIME_LIMIT_SECONDS

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


# Each character that Python and JavaScript treat differently somewhere, alone, within and at the end of a text.
CHARACTERS = [
    "\n",
    "\r",
    "\x0b",
    "\x1c",
    "\x7f",
    "\x85",
    "\xa0",
    "\u180e",
    "\u200b",
    "\u2028",
    "\ufeff",
    "🎪",
    "é",
    "",
    "0",
]
WORDS = ["ana", "/a", "https://a", "19.90", "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f", "0" * 32]
TEXTS = [
    *CHARACTERS,
    *(text for word in WORDS for c in CHARACTERS for text in (word + c, c + word, f"{word}{c}{word}")),
]


@pytest.fixture(scope="module")
def javascript(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What JavaScript makes of the schemas."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "openapi.json").write_bytes(msgspec.json.encode(document))
    (folder / "texts.json").write_bytes(msgspec.json.encode(TEXTS))
    command: list[str | Path] = ["node", FOLDER / "compile_schemas.mjs", folder / "openapi.json", folder / "texts.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def test_javascript_compiles_every_schema(document: dict[str, Any], javascript: dict[str, Any]) -> None:
    assert javascript["schemas"] > len(document["components"]["schemas"]) + len(document["paths"])


def test_patterns_match_the_same_texts_in_python_and_javascript(javascript: dict[str, Any]) -> None:
    assert javascript["matches"]
    for pattern, matches in javascript["matches"].items():
        differing = [text for text, js in zip(TEXTS, matches, strict=True) if bool(re.search(pattern, text)) != js]
        assert not differing, f"{pattern} matches {differing} in one of them only"


def test_a_schema_is_named_after_one_type(document: dict[str, Any]) -> None:
    strange = [name for name in document["components"]["schemas"] if not name.isalnum()]
    assert not strange, f"{strange}: two types have the same name, or a generic type has none"


def test_every_body_and_every_list_has_a_type(document: dict[str, Any]) -> None:
    untyped = [
        f"{method.upper()} {path}: the {part} has no type; declare it, or `body_schema` if the handler checks the body"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for part, content in contents(operation)
        if content.get("schema", {}) == {} or content["schema"].get("items") == {}
    ]
    assert not untyped, "\n".join(untyped)


def contents(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The body of the request and of each response."""
    found = [("body", content) for content in operation.get("requestBody", {}).get("content", {}).values()]
    for status, response in operation["responses"].items():
        found += [(f"response {status}", content) for content in response.get("content", {}).values()]
    return found


def test_what_a_request_may_leave_out_is_not_required(document: dict[str, Any]) -> None:
    new_post = document["components"]["schemas"]["NewPost"]
    assert new_post["required"] == ["content"]
    assert "default" not in new_post["properties"]["hashtags"], "generators would make it required"
    is_break = document["components"]["schemas"]["NewChallengePost"]["properties"]["is_break"]
    assert is_break["description"].endswith("Default: `false`.")


def test_what_a_response_always_has_is_required(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert "deleted" in schemas["DeletedArticle"]["required"], "it has a default, and is always sent"
    assert "edited_at" not in schemas["Post"]["required"], "it is left out of posts that were not edited"
    assert schemas["Post"]["properties"]["edited_at"] == {"type": "integer"}, "and is never null"
