"""The declaration of the domain notes, which plugs it into Plaza."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.new_domain.notes.library import LIBRARY
from plaza.new_domain.notes.personal_data import PERSONAL_KEYS, NotesPersonalData
from plaza.new_domain.notes.routes import route
from plaza.new_domain.notes.service import Notes


def build(core: Core) -> Parts:
    """Build the services on an open core."""
    return Parts(
        [Notes(core.functions)],
        personal_data=NotesPersonalData(core.valkey),
        personal_keys=PERSONAL_KEYS,
    )


DOMAIN = Domain(LIBRARY, [route], build)
