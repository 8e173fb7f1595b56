"""The search index."""

import sqlalchemy as sa
from alembic import op

revision = "search_0001"
down_revision = None
branch_labels = ("search",)
depends_on = None

# Letters, digits and marks form words; `Co` are the characters that mark tags and authors.
_SQLITE = """
CREATE VIRTUAL TABLE search_words USING fts5(
    terms, content='search_document', content_rowid='id', prefix='2 3',
    tokenize="unicode61 remove_diacritics 0 categories 'L* N* M* Co'"
);
CREATE TRIGGER search_document_added AFTER INSERT ON search_document BEGIN
    INSERT INTO search_words(rowid, terms) VALUES (new.id, new.terms);
END;
CREATE TRIGGER search_document_removed AFTER DELETE ON search_document BEGIN
    INSERT INTO search_words(search_words, rowid, terms) VALUES ('delete', old.id, old.terms);
END;
CREATE TRIGGER search_document_changed AFTER UPDATE OF terms ON search_document BEGIN
    INSERT INTO search_words(search_words, rowid, terms) VALUES ('delete', old.id, old.terms);
    INSERT INTO search_words(rowid, terms) VALUES (new.id, new.terms);
END;
"""

_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "search_document",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("author", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("terms", sa.Text, nullable=False),
        sa.UniqueConstraint("kind", "key", name="uq_search_document_kind_key"),
    )
    op.create_index("ix_search_document_author", "search_document", ["author"])
    op.create_table(
        "search_name",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("weight", sa.Float, nullable=False),
    )
    op.create_index("ix_search_name_kind_key", "search_name", ["kind", "key"])
    op.create_table(
        "search_trigram",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("trigram", sa.String(3), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
    )
    op.create_index("ix_search_trigram_kind_name", "search_trigram", ["kind", "name"])
    op.create_table(
        "search_rebuild",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("after", sa.String(64), nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for statement in _SQLITE.split(";\nCREATE"):
            op.execute(sa.text(statement if "CREATE" in statement else f"CREATE{statement}"))
    else:
        op.create_table(
            "search_words",
            sa.Column(
                "rowid", sa.BigInteger, sa.ForeignKey("search_document.id", ondelete="CASCADE"), primary_key=True
            ),
            sa.Column("terms", sa.dialects.postgresql.TSVECTOR, nullable=False),
        )
        op.create_index("ix_search_words_terms", "search_words", ["terms"], postgresql_using="gin")


def downgrade() -> None:
    for table in ("search_words", "search_rebuild", "search_trigram", "search_name", "search_document"):
        op.drop_table(table)
