"""What the operator pages share: their section and their tabs."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from plaza.web.rendering import tabs

SECTION: Final = "Operations"


def operator_tabs(current: str) -> Markup:
    """The tabs of the operator pages."""
    views = (("Live", "/app/operator/live"), ("Keys", "/app/operator/keys"), ("Health", "/app/operator/health"))
    return tabs("Operator pages", views, current)
