"""The SQL tables of pictures.

A picture belongs to the user who uploaded it; its files are stored once, however many users upload the same ones. So a
ban or a deletion concerns one user's picture, and the files stay while another picture has them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()

# The files of pictures, by their content.
CONTENTS = Table(
    "media_contents",
    METADATA,
    Column("digest", String(64), primary_key=True),  # SHA-256 of all files
    # Where the files are. It differs if the same content is stored again after it was deleted, so that a deletion that
    # is still running never removes a new file.
    Column("path", String(80), nullable=False, unique=True),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("blurhash", String(40), nullable=False),
    Column("files", Text, nullable=False),  # JSON: variant, format and size of each file
    Column("bytes", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
PICTURES = Table(
    "media_pictures",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("owner", String(30), nullable=False),  # a username; empty for a picture of Plaza itself, as of a shop item
    Column("digest", String(64), ForeignKey(CONTENTS.c.digest), nullable=False),
    Column("alt", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # counts towards the owner's quota, also where files are shared
    Column("created_ms", BigInteger, nullable=False),
    Column("check_ms", BigInteger, nullable=False),  # when to look next whether anything shows it
    Column("unused_ms", BigInteger),  # when nothing showed it any more; null while something does
    Index(None, "owner", "created_ms", "id"),
    Index(None, "digest"),
    Index(None, "check_ms"),
)
# What may show a picture. Whether it does is decided by the thing itself: see `PictureHost`.
USES = Table(
    "media_uses",
    METADATA,
    Column("picture_id", String(36), ForeignKey(PICTURES.c.id, ondelete="CASCADE"), primary_key=True),
    Column("kind", String(20), primary_key=True),  # `post`, `avatar`, `item`
    Column("thing", String(64), primary_key=True),  # its id
)
