"""What `plaza keys` says of the catalogue, to people and to programs."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from plaza.app import catalogues
from plaza.keyspace import catalogue_docs


def test_the_documents_names_are_told_to_people_and_to_programs() -> None:
    told = {record["pattern"]: record for record in catalogue_docs.records(catalogues())}
    screen = StringIO()
    catalogue_docs.show(catalogues(), Console(file=screen, width=2_000))
    for catalogue in catalogues():
        for _, key in catalogue:
            record = told[key.pattern]
            assert (record["documented_as"], record["owner"]) == (key.document or None, key.owner or None)
            assert key.document in screen.getvalue()
    assert told["upvoted:<article>"]["documented_as"] == "upvoted:123123"
    assert told["post:<post>:likes"]["owner"] == "post"
    assert "upvoted:123123" in screen.getvalue()
