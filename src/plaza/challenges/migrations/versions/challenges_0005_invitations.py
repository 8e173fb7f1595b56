"""Invitations to private challenges."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0005"
down_revision = "challenges_0004"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    key = sa.ForeignKey("challenge.id", name="fk_challenge_invitation_challenge_id", ondelete="CASCADE")
    op.create_table(
        "challenge_invitation",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("challenge_id", _ID, key, nullable=False),
        sa.Column("username", sa.String(30), nullable=False),
        sa.Column("inviter", sa.String(30), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("challenge_id", "username", name="uq_challenge_invitation_challenge_id_username"),
        sqlite_autoincrement=True,
    )
    for column in ("username", "inviter"):
        op.create_index(f"ix_challenge_invitation_{column}", "challenge_invitation", [column])


def downgrade() -> None:
    op.drop_table("challenge_invitation")
