"""A log of rows that Plaza inserted, so that the daily job finds those deleted by hand before it counted them."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0002"
down_revision = "challenges_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "challenge_arrival",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("table_name", sa.String(10), nullable=False),
        sa.Column("row_id", sa.BigInteger, nullable=False),
        sa.Column("challenge_id", sa.BigInteger, nullable=False),
        sa.Column("post_id", sa.BigInteger),
        sa.Column("username", sa.String(30), nullable=False),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("challenge_arrival")
