"""Connections to PostgreSQL by asyncpg, which the extra `postgres` installs. Import it only where that is used."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

CONNECT_SECONDS: Final = 5.0
# Longer than a statement may take: for a server that does not cancel it.
SILENCE_SECONDS: Final = 5.0


async def connect(url: str, statement_seconds: float | None, lock_ms: int = 0) -> Any:
    """Open a connection whose statements may take, and wait for a lock, so long; None and 0 for no limit.

    Raises `ValueError` if the URL is not valid, and `OSError` if there is no database or it refuses. asyncpg parses
    the URL as libpq does (sslmode, several hosts, a password file); SQLAlchemy does not.
    """
    try:
        return await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            command_timeout=statement_seconds and statement_seconds + SILENCE_SECONDS,
            server_settings={
                "application_name": "plaza",
                "statement_timeout": str(round((statement_seconds or 0) * 1000)),
                "lock_timeout": str(lock_ms),
            },
        )
    except asyncpg.PostgresError as error:
        raise ConnectionError(str(error)) from error
