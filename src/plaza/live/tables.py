"""The SQL tables of `live`: viewing sessions, five-minute records, totals, reports. No address is ever in them.

Every row has its own key and absolute values, so writing it twice changes nothing.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()
VIEWINGS = Table(
    "live_viewings",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),  # empty outside any session
    Column("location", String(128), primary_key=True),
    Column("viewer", String(128), primary_key=True, index=True),
    Column("started_at", BigInteger, primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
)
RECORDS = Table(
    "live_records",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),  # empty for the event
    Column("at", BigInteger, primary_key=True),
    Column("record", Text, nullable=False),
)
TOTALS = Table(
    "live_totals",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),
    Column("born_at", BigInteger, primary_key=True),
    Column("peak", BigInteger, nullable=False),
    Column("peak_at", BigInteger, nullable=False),
    Column("logins", BigInteger, nullable=False),
    Column("attended", BigInteger, nullable=False),
)
REPORTS = Table(
    "live_reports",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("born_at", BigInteger, primary_key=True),
    Column("metric", String(16), primary_key=True),
    Column("name", String(128), primary_key=True),  # a country, a device or a site
    Column("bucket", Integer, primary_key=True),
    Column("count", BigInteger, nullable=False),
)
