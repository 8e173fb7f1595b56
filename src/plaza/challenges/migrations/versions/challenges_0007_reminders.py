"""Reminders of members."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "challenges_0007"
down_revision = "challenges_0006"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "reminder_hour": sa.Integer(),
    "reminder_time_zone": sa.String(64),
    "reminder_due_ms": sa.BigInteger(),
    "reminded_ms": sa.BigInteger(),
}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("member", sa.Column(name, kind))
    op.create_index("ix_member_reminder_due_ms", "member", ["reminder_due_ms"])


def downgrade() -> None:
    op.drop_index("ix_member_reminder_due_ms", "member")
    for name in _COLUMNS:
        op.drop_column("member", name)
