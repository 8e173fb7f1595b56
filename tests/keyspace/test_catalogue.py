"""`plaza keys` prints the catalogue as text and as JSON."""

from __future__ import annotations

from plaza.app import catalogues
from plaza.keyspace import catalogue_docs


def test_text_and_json_contain_the_documented_names() -> None:
    records = {record["pattern"]: record for record in catalogue_docs.records(catalogues())}
    text = catalogue_docs.text(catalogues(), width=80)
    for catalogue in catalogues():
        for _, key in catalogue:
            record = records[key.pattern]
            assert (record["documented_as"], record["owner"]) == (key.document or None, key.owner or None)
            assert key.document in text
    assert records["upvoted:<article>"]["documented_as"] == "upvoted:123123"
    assert records["post:<post>:likes"]["owner"] == "post"
    assert "upvoted:123123" in text
