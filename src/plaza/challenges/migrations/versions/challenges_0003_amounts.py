"""Units of challenges, amounts of tracked days, and what each member has tracked in all."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0003"
down_revision = "challenges_0002"
branch_labels = None
depends_on = None

_TOTALS = ("days", "streak", "longest_streak", "last_day")
_INDEXED = ("days", "amount_thousandths", "streak")


def upgrade() -> None:
    op.add_column("challenge", sa.Column("unit", sa.String(20), nullable=False, server_default=""))
    op.add_column("tracking", sa.Column("amount_thousandths", sa.BigInteger))
    for name in _TOTALS:
        op.add_column("member", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("member", sa.Column("amount_thousandths", sa.BigInteger, nullable=False, server_default="0"))
    for name in _INDEXED:
        op.create_index(f"ix_member_challenge_id_{name}", "member", ["challenge_id", name])


def downgrade() -> None:
    for name in _INDEXED:
        op.drop_index(f"ix_member_challenge_id_{name}", "member")
    for name in (*_TOTALS, "amount_thousandths"):
        op.drop_column("member", name)
    op.drop_column("tracking", "amount_thousandths")
    op.drop_column("challenge", "unit")
