"""The history of posts, comments and challenges: what each was before its edits."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, insert, select

from plaza.challenges.tables import EDIT
from plaza.core.async_engine import AsyncConnection
from plaza.core.comment_tree import MAX_EDITS


async def keep_text(tx: AsyncConnection, table: str, id: int, username: str, text: str, now_ms: int) -> None:
    """Keep the text of a row before an edit, and of all its texts the last 50. Two statements."""
    of_row = (EDIT.c.table_name == table, EDIT.c.row_id == id)
    values = {"table_name": table, "row_id": id, "username": username, "text": text, "until_ms": now_ms}
    await tx.execute(insert(EDIT).values(values))
    last = select(EDIT.c.id).where(*of_row).order_by(EDIT.c.id.desc()).limit(MAX_EDITS)
    await tx.execute(delete(EDIT).where(*of_row, EDIT.c.id.not_in(last)))


async def delete_texts(tx: AsyncConnection, table: str, ids: Collection[int]) -> None:
    """Delete the history of deleted rows."""
    await tx.execute(delete(EDIT).where(EDIT.c.table_name == table, EDIT.c.row_id.in_(ids)))
