"""Details of logged actions, and whether an admin acted or something happened to an account."""

import sqlalchemy as sa
from alembic import op

revision = "accounts_0002"
down_revision = "accounts_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("accounts_security_log", sa.Column("kind", sa.String(10), nullable=False, server_default="account"))
    op.add_column("accounts_security_log", sa.Column("detail", sa.String(300), nullable=False, server_default=""))
    log = sa.table("accounts_security_log", sa.column("kind"), sa.column("action"), sa.column("actor"))
    # Routes have a space (`PATCH /users/{username}/role`), account events do not.
    admin = sa.or_(log.c.action.like("% %"), log.c.actor == "@cli")
    op.execute(sa.update(log).where(admin).values(kind="admin"))
    op.create_index("ix_accounts_security_log_action_id", "accounts_security_log", ["action", "id"])


def downgrade() -> None:
    op.drop_index("ix_accounts_security_log_action_id", "accounts_security_log")
    op.drop_column("accounts_security_log", "detail")
    op.drop_column("accounts_security_log", "kind")
