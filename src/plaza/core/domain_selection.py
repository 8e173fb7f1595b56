"""Which domains a process runs: Plaza's own and those of installed packages, or those that `PLAZA_DOMAINS` names.

A package offers a domain by an entry point of the group `plaza.domains`:

    [project.entry-points."plaza.domains"]
    polls = "polls.domain:DOMAIN"
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Final

from plaza.core.domain import Domain, Parts
from plaza.core.domain_packages import GROUP, domain_packages
from plaza.core.errors import OperatorError, SettingError
from plaza.core.keyspace import Key
from plaza.core.tokens import USERNAME

_METHODS: Final = ("export", "delete", "rename")


def installed_domains(own: Sequence[Domain]) -> list[Domain]:
    """Return Plaza's own domains and those of installed packages, in the order in which they are built.

    Domains that use what all others offer (search, …) are Plaza's own and come last.
    """
    found = domains_of_packages()
    names = [domain.name for domain in (*own, *found)]
    for name in {name for name in names if names.count(name) > 1}:
        raise OperatorError(f"Two domains are called {name}. Uninstall the package of one of them, or rename it.")
    first_user = next((n for n, domain in enumerate(own) if domain.uses_all), len(own))
    return [*own[:first_user], *found, *own[first_user:]]


def domains_of_packages() -> list[Domain]:
    """Return the domains of installed packages."""
    return [_load(point) for point in domain_packages()]


def _load(point: EntryPoint) -> Domain:
    try:
        domain = point.load()
    except Exception as error:
        raise OperatorError(
            f"The domain {point.name} cannot be loaded from {point.value}: {error}. Repair or uninstall its package."
        ) from error
    if not isinstance(domain, Domain):
        raise OperatorError(f"The entry point {point.name} of {GROUP} names no Domain. It is {point.value}.")
    return domain


def selected_domains(installed: Sequence[Domain], names: Sequence[str]) -> list[Domain]:
    """Return the domains of these names and those that they require; all without names."""
    if not names:
        return list(installed)
    by_name = {domain.name: domain for domain in installed}
    wanted, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in by_name:
            raise SettingError(f"PLAZA_DOMAINS names {name}, which is not installed. There are {', '.join(by_name)}.")
        if name not in wanted:
            wanted.add(name)
            waiting += by_name[name].requires
    return [domain for domain in installed if domain.name in wanted]


def require_personal_data(domain: Domain, parts: Parts) -> None:
    """Refuse a domain with keys of users that account export, deletion and renaming would miss."""
    data = parts.personal_data
    handled = () if data is None else parts.personal_keys
    missed = [key.pattern for _, key in domain.catalogue if _belongs_to_user(domain, key) and key not in handled]
    if missed:
        raise OperatorError(
            f"The domain {domain.name} has keys of users that an account's export, deletion and renaming would miss: "
            f"{', '.join(missed)}. Handle them in `export`, `delete` and `rename` of its personal data, and list them: "
            "`Parts(…, personal_data=…, personal_keys=[…])`. docs/tutorials/write-a-domain.md shows how."
        )
    lacking = [name for name in _METHODS if data is not None and not callable(getattr(data, name, None))]
    if lacking:
        raise OperatorError(f"The personal data of the domain {domain.name} lack the method {', '.join(lacking)}.")


def _belongs_to_user(domain: Domain, key: Key) -> bool:
    return any(part == "username" or domain.catalogue.shapes.get(part) == USERNAME for part in key.parts)
