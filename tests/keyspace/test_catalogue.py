"""`plaza keys` prints the catalogue as text and as JSON."""

from __future__ import annotations

from plaza.app import catalogues
from plaza.core.keyspace import Layout
from plaza.keyspace import catalogue_docs
from plaza.keyspace.family_matching import KeyFamilies


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


def test_the_shapes_of_members_values_and_fields_are_patterns_of_known_parts() -> None:
    """The audit compiles a shape when it meets the first key of a family: an error would come only then."""
    for family in KeyFamilies(catalogues(), Layout.PLAIN).all:
        for shape in (family.element_shape, family.value_shape, *family.fields.values()):
            if shape is not None:
                shape.read("")  # an unknown part is a KeyError
