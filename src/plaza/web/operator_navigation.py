"""What the operator pages share: their section and their tabs."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from plaza.web.rendering import tabs

SECTION: Final = "Operations"
_PAGES: Final = ("Live", "Reports", "Keys", "Webhooks", "Health", "Log")


def operator_tabs(current: str) -> Markup:
    """The tabs of the operator pages."""
    views = tuple((name, f"/app/operator/{name.lower()}") for name in _PAGES)
    return tabs("Operator pages", views, current)
