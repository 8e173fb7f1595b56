"""The names of Plaza's own domains, and what is known of them without their services and tables."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from plaza.core import keys
from plaza.core.domain_packages import domain_packages
from plaza.core.keyspace import Catalogue
from plaza.core.settings import Settings
from plaza.demo.keys import CATALOGUE as DEMO_KEYS
from plaza.keyspace.audit_keys import CATALOGUE as AUDIT_KEYS

# Plaza's own domains, in the order in which they are built.
OWN_DOMAINS: Final = (
    "accounts",
    "media",
    "social",
    "articles",
    "challenges",
    "live",
    "caching",
    "shop",
    "reports",
    "search",
    "notifications",
    "webhooks",
    "desk",
)


def only_own_domains(settings: Settings) -> bool:
    """Whether all of Plaza's own domains run and no others, as usual: then none has to be imported to know which."""
    return not settings.domains and not domain_packages()


def configured_catalogues(settings: Settings) -> list[Catalogue]:
    """Return the keys of the domains that the settings name, or of all that are installed, by domain."""
    if not only_own_domains(settings):
        from plaza.app import catalogues, configured_domains

        return catalogues(configured_domains(settings))
    own = [import_module(f"plaza.{name}.keys").CATALOGUE for name in OWN_DOMAINS]
    return [keys.CATALOGUE, AUDIT_KEYS, *own, DEMO_KEYS]
