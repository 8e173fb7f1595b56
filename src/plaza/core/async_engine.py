"""SQLAlchemy's asyncio engine without its ORM, which Plaza does not use: that saves 50 modules at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plaza.core.submodules import import_submodule

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
else:
    _engine = import_submodule("sqlalchemy.ext.asyncio.engine")
    AsyncConnection, AsyncEngine = _engine.AsyncConnection, _engine.AsyncEngine
    create_async_engine = _engine.create_async_engine

__all__ = ["AsyncConnection", "AsyncEngine", "create_async_engine"]
