"""What the operator pages share: their section and their tabs."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from plaza.web.rendering import shown_domains, tabs

SECTION: Final = "Operations"
# The pages, each with the domain that it shows; empty if it shows all.
_PAGES: Final = (
    ("Live", "live"),
    ("Reports", "reports"),
    ("Keys", ""),
    ("Webhooks", "webhooks"),
    ("Health", ""),
    ("Log", "accounts"),
)


def operator_views() -> tuple[tuple[str, str], ...]:
    """The names and paths of the operator pages of the domains that run."""
    domains = {"", *shown_domains()}
    return tuple((name, f"/app/operator/{name.lower()}") for name, domain in _PAGES if domain in domains)


def operator_tabs(current: str) -> Markup:
    """The tabs of the operator pages."""
    return tabs("Operator pages", operator_views(), current)
