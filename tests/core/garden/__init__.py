"""A domain that only tests have: two tables in two revisions, on a branch of its own."""

from pathlib import Path

FOLDER = Path(__file__).parent / "migrations" / "versions"
