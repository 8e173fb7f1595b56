"""The security log."""

import sqlalchemy as sa
from alembic import op

revision = "accounts_0001"
down_revision = None
branch_labels = ("accounts",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts_security_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(60), nullable=False),
        sa.Column("action", sa.String(120), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("result", sa.String(40), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
    )
    op.create_index("ix_accounts_security_log_actor_id", "accounts_security_log", ["actor", "id"])
    op.create_index("ix_accounts_security_log_subject_id", "accounts_security_log", ["subject", "id"])
    op.create_index("ix_accounts_security_log_at_ms", "accounts_security_log", ["at_ms"])


def downgrade() -> None:
    op.drop_table("accounts_security_log")
