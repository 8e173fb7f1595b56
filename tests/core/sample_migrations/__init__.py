"""A domain for tests: two tables in two revisions, on a branch of its own."""

from pathlib import Path

from sqlalchemy import Column, ForeignKey, Integer, String, Table, select

from plaza.core import sql_migrations
from plaza.core.sql import Sql, metadata

FOLDER = Path(__file__).parent / "migrations" / "versions"

TABLES = metadata()
PARENTS = Table(
    "parents",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("name", String(50), unique=True, nullable=False),
    Column("amount", Integer, nullable=False),
)
CHILDREN = Table(
    "children",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("parent", Integer, ForeignKey("parents.id"), nullable=False),
    Column("name", String(50), nullable=False),
)


def sample_folders() -> list[Path]:
    """The folders of all migrations, with the sample domain's."""
    return [*sql_migrations.migration_folders(), FOLDER]


async def fetch_amount(sql: Sql) -> int:
    async with sql.read() as tx:
        return int((await tx.execute(select(PARENTS.c.amount))).scalar_one())
