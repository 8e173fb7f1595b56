"""The password of the demo's admin, in a file of the data directory."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from plaza.core.settings import stored_secret

PASSWORD_FILE: Final = "demo-password"  # noqa: S105 a file name
# Without letters and digits that look alike.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"


def admin_password(data_dir: Path) -> str:
    """Return the password of the demo's admin, generated once."""
    return stored_secret(data_dir / PASSWORD_FILE, _new_password)


def _new_password() -> str:
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(4))
