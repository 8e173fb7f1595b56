"""Checks that everything the catalogues and the domains say of the keys is true, and makes it true again.

await plaza.get(Audits).start(actor)         # in the background, one at a time
(await plaza.get(Audits).state(actor)).last  # what it found
"""

from plaza.keyspace.audit.auditor import AUDIT, DRY_RUN, REPAIR, Auditor
from plaza.keyspace.audit.report import Finding, Group, Report
from plaza.keyspace.audit.service import LIBRARY, Audits, State

__all__ = ["AUDIT", "DRY_RUN", "LIBRARY", "REPAIR", "Auditor", "Audits", "Finding", "Group", "Report", "State"]
