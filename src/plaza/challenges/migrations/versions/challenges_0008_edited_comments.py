"""The time at which a comment was edited."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0008"
down_revision = "challenges_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("challenge_comment", sa.Column("edited_ms", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("challenge_comment", "edited_ms")
