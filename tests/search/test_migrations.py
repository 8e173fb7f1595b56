"""The migrations of the index keep what is found, up and down, on both databases."""

from __future__ import annotations

import pytest
from alembic import command
from sqlalchemy import Connection, text

from plaza.core import sql_migrations
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.search.index import SearchIndex
from plaza.search.query import parse_query
from plaza.search.tables import SEARCH_DOCUMENT

# In windows of their own, and two in one.
IDS = (1, 8_191, 8_192, 40_000, 140_000, 300_000)


@pytest.fixture
def sql_settings(empty_sql_settings: Settings) -> Settings:
    return empty_sql_settings


def _old_words(id: int) -> dict[str, object]:
    """The row of a document with one size of windows."""
    return {"id": id, "terms": f"'pear':2 'apple':1,3 '\ue030{id >> 15}'"}


def _write_old_form(connection: Connection) -> None:
    folders = sql_migrations.migration_folders()
    sql_migrations.upgrade_to(connection, folders, ["search_0002"])
    rows = [
        {"id": id, "kind": "posts", "key": str(id), "author": "", "created_ms": id, "weight": 0.0, "tags": ""}
        for id in IDS
    ]
    connection.execute(SEARCH_DOCUMENT.insert(), [{**row, "terms": "apple pear apple"} for row in rows])
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("INSERT INTO search_words VALUES (:id, CAST(:terms AS tsvector))"), [_old_words(id) for id in IDS]
        )


def _downgrade(connection: Connection) -> None:
    config = sql_migrations._config(sql_migrations.migration_folders())
    config.attributes["connection"] = connection
    command.downgrade(config, "search@search_0002")


async def test_rows_of_the_old_form_are_found_after_the_change_of_windows(sql_settings: Settings) -> None:
    empty = await Sql.open(sql_settings, [])
    async with empty.begin() as tx:
        await tx.run_sync(_write_old_form)
    await empty.close()
    sql = await Sql.open(sql_settings)
    index = SearchIndex(sql)
    for phrase in ('"apple" "pear"', '"pear apple"'):
        for count in range(1, len(IDS) + 1):
            found = await index.find("posts", parse_query(phrase), count, newest=True)
            assert {int(match.key) for match in found} == set(IDS[-count:]), "each once, the newest first"
    async with sql.begin() as tx:
        await tx.run_sync(_downgrade)
        if sql.dialect == "postgresql":
            for id in IDS:
                same = "SELECT terms = CAST(:terms AS tsvector) FROM search_words WHERE rowid = :id"
                assert (await tx.execute(text(same), _old_words(id))).scalar_one()
    await sql.close()
