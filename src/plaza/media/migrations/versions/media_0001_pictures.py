"""Pictures, their files, and what shows them."""

import sqlalchemy as sa
from alembic import op

revision = "media_0001"
down_revision = None
branch_labels = ("media",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "media_contents",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("path", sa.String(80), nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("blurhash", sa.String(40), nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("path", name="uq_media_contents_path"),
    )
    op.create_table(
        "media_pictures",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("owner", sa.String(30), nullable=False),
        sa.Column(
            "digest", sa.String(64), sa.ForeignKey("media_contents.digest", name="fk_pictures_content"), nullable=False
        ),
        sa.Column("alt", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("check_ms", sa.BigInteger, nullable=False),
        sa.Column("unused_ms", sa.BigInteger),
    )
    op.create_index("ix_media_pictures_owner_created_ms_id", "media_pictures", ["owner", "created_ms", "id"])
    op.create_index("ix_media_pictures_digest", "media_pictures", ["digest"])
    op.create_index("ix_media_pictures_check_ms", "media_pictures", ["check_ms"])
    op.create_table(
        "media_uses",
        sa.Column(
            "picture_id",
            sa.String(36),
            sa.ForeignKey("media_pictures.id", name="fk_uses_picture", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("kind", sa.String(20), primary_key=True),
        sa.Column("thing", sa.String(64), primary_key=True),
    )


def downgrade() -> None:
    op.drop_table("media_uses")
    op.drop_table("media_pictures")
    op.drop_table("media_contents")
