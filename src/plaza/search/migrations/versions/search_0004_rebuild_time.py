"""When a rebuild came so far, so that one that was given up is not continued."""

import sqlalchemy as sa
from alembic import op

revision = "search_0004"
down_revision = "search_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("search_rebuild", sa.Column("saved_ms", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("search_rebuild", "saved_ms")
