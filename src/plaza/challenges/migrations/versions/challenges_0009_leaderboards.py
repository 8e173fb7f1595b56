"""Indexes in the order of leaderboards: among equals, those who joined first."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0009"
down_revision = "challenges_0008"
branch_labels = None
depends_on = None

_BEFORE = ("days", "amount_thousandths", "streak")
_INDEXES = {
    "days": ("days DESC", "id", "amount_thousandths"),
    "amount": ("amount_thousandths DESC", "id"),
    "streak": ("streak DESC", "id", "last_day"),
}


def upgrade() -> None:
    for name in _BEFORE:
        op.drop_index(f"ix_member_challenge_id_{name}", "member")
    for name, parts in _INDEXES.items():
        op.create_index(f"ix_member_{name}", "member", ["challenge_id", *map(sa.text, parts)])


def downgrade() -> None:
    for name in _INDEXES:
        op.drop_index(f"ix_member_{name}", "member")
    for name in _BEFORE:
        op.create_index(f"ix_member_challenge_id_{name}", "member", ["challenge_id", name])
