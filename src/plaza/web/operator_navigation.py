"""What the operator pages share: their section and their tabs."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from plaza.web.rendering import tabs

SECTION: Final = "Operations"


def operator_tabs(current: str) -> Markup:
    """The tabs of the operator pages."""
    views = tuple((name, f"/app/operator/{name.lower()}") for name in ("Live", "Keys", "Webhooks", "Health", "Log"))
    return tabs("Operator pages", views, current)
