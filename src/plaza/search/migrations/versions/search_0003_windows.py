"""Three sizes of windows on PostgreSQL, and a short list of words that wait for the index: every query reads it."""

import sqlalchemy as sa
from alembic import op

revision = "search_0003"
down_revision = "search_0002"
branch_labels = None
depends_on = None

_INDEX = "ix_search_words_terms"
_OLD_TERM = "U&'\\E030' || (rowid >> 15)"
_NEW_TERMS = "ARRAY[U&'\\E030' || (rowid >> 13), U&'\\E031' || (rowid >> 15), U&'\\E032' || (rowid >> 17)]"


def _rewrite(terms: str, options: dict[str, int]) -> None:
    """Write the words again in the order of ids, without the space that an update would leave."""
    columns = ("rowid", "terms")
    words, before = (sa.table(name, *map(sa.column, columns)) for name in ("search_words", "search_words_before"))
    rows = sa.select(before.c.rowid, sa.literal_column(terms)).order_by(before.c.rowid)
    op.drop_index(_INDEX, "search_words")
    op.execute("CREATE TEMPORARY TABLE search_words_before AS SELECT rowid, terms FROM search_words")
    op.execute("TRUNCATE search_words")
    op.execute(sa.insert(words).from_select(columns, rows))
    op.execute("DROP TABLE search_words_before")
    op.create_index(_INDEX, "search_words", ["terms"], postgresql_using="gin", postgresql_with=options)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        terms = f"ts_delete(terms, {_OLD_TERM}) || array_to_tsvector({_NEW_TERMS})"
        _rewrite(terms, {"gin_pending_list_limit": 64})


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _rewrite(f"ts_delete(terms, {_NEW_TERMS}) || array_to_tsvector(ARRAY[{_OLD_TERM}])", {})
