"""Names by their first letters, the heaviest first, for suggestions."""

import sqlalchemy as sa
from alembic import op

revision = "search_0002"
down_revision = "search_0001"
branch_labels = None
depends_on = None

_LENGTHS = (1, 2, 3, 4)


def upgrade() -> None:
    for length in _LENGTHS:
        columns = [sa.text(part) for part in ("kind", f"substr(name, 1, {length})", "weight DESC", "name")]
        op.create_index(f"ix_search_name_prefix_{length}", "search_name", columns)


def downgrade() -> None:
    for length in _LENGTHS:
        op.drop_index(f"ix_search_name_prefix_{length}", "search_name")
