"""Prices with their currency, as pages show them."""

from __future__ import annotations

from typing import Final

# The signs that readers of English know; other currencies are shown with their code.
_SIGNS: Final = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}
# Currencies without a smaller unit.
_WHOLE_UNITS: Final = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF"})


def format_money(amount: str, currency: str) -> str:
    """A decimal as `€12,500.00`, `¥1,200` or `SEK 90.00`; empty for an item without a price."""
    units, point, cents = amount.partition(".")
    if not units:
        return ""
    if currency in _WHOLE_UNITS and not cents.strip("0"):
        point = cents = ""
    # A no-break space keeps code and number in one line.
    sign = _SIGNS.get(currency, f"{currency}\u00a0")
    return f"{sign}{int(units):,}{point}{cents}"
