"""Comments on posts in challenges."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0006"
down_revision = "challenges_0005"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TABLE = "challenge_comment"


def _key(column: str, target: str) -> sa.Column[int]:
    key = sa.ForeignKey(f"{target}.id", name=f"fk_{_TABLE}_{column}", ondelete="CASCADE")
    return sa.Column(column, _ID, key, nullable=False)


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        _key("post_id", "post"),
        _key("challenge_id", "challenge"),
        sa.Column("username", sa.String(30), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("reply_to", sa.BigInteger),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.String(64)),
        sa.UniqueConstraint("operation", name=f"uq_{_TABLE}_operation"),
        sqlite_autoincrement=True,
    )
    op.create_index(f"ix_{_TABLE}_post_id_id", _TABLE, ["post_id", "id"])
    op.create_index(f"ix_{_TABLE}_challenge_id", _TABLE, ["challenge_id"])
    op.create_index(f"ix_{_TABLE}_username_post_id", _TABLE, ["username", "post_id"])


def downgrade() -> None:
    op.drop_table(_TABLE)
