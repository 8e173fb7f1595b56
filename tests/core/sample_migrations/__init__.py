"""A domain that only tests have: two tables in two revisions, on a branch of its own."""

from pathlib import Path

from sqlalchemy import Column, ForeignKey, Integer, String, Table, select

from plaza.core import migrate
from plaza.core.sql import Sql, metadata

FOLDER = Path(__file__).parent / "migrations" / "versions"

TABLES = metadata()
BEDS = Table(
    "beds",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("name", String(50), unique=True, nullable=False),
    Column("free", Integer, nullable=False),
)
PLANTS = Table(
    "plants",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("bed", Integer, ForeignKey("beds.id"), nullable=False),
    Column("name", String(50), nullable=False),
)


def with_garden() -> list[Path]:
    return [*migrate.migration_folders(), FOLDER]


async def free(sql: Sql) -> int:
    async with sql.read() as tx:
        return int((await tx.execute(select(BEDS.c.free))).scalar_one())
