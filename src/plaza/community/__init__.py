"""A whole community as JSON lines: `plaza export` writes them, `plaza import` reads them. See docs/export.md."""
