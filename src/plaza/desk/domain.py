"""The declaration of the desk."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.desk import jobs, routes
from plaza.desk.directory import UserDirectory
from plaza.desk.growth import Growth
from plaza.desk.library import LIBRARY
from plaza.desk.notes import UserNotes
from plaza.desk.personal_data import DeskPersonalData


def build(core: Core) -> Parts:
    """Build the desk. Its services are built last, with the users that another domain provides."""

    def build_last(provided: Provided) -> Parts:
        assert provided.user_states is not None, "the desk requires the domain of users"
        directory = UserDirectory(core.sql, provided.user_states)
        growth = Growth(core.sql, core.valkey, core.clock, core.event_types)
        notes = UserNotes(core.sql, core.valkey, directory, core.clock)
        return Parts(
            [directory, growth, notes],
            timers=jobs.timers(directory, growth),
            consumers=jobs.consumers(directory),
        )

    return Parts([], build_last=build_last, personal_data=DeskPersonalData(core.sql))


DOMAIN = Domain(LIBRARY, [routes.route], build, requires=["social"], uses_all=True)
