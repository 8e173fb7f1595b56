"""The request that created a report."""

import sqlalchemy as sa
from alembic import op

revision = "reports_0002"
down_revision = "reports_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("reports", sa.Column("operation", sa.String(64)))
    op.create_index("uq_reports_operation", "reports", ["operation"], unique=True)


def downgrade() -> None:
    op.drop_index("uq_reports_operation", "reports")
    op.drop_column("reports", "operation")
