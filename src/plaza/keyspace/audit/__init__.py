"""Checks every key against the invariants that catalogues and domains declare, and repairs derived data.

await plaza.get(Audits).start(actor)         # in the background, one at a time
(await plaza.get(Audits).state(actor)).last  # the report of the last audit
"""

from plaza.keyspace.audit.audit_runs import LIBRARY, Audits, AuditState
from plaza.keyspace.audit.auditor import ADOPT, AUDIT, DRY_RUN, FAILOVER, REPAIR, Auditor
from plaza.keyspace.audit.failover import FailoverWatch
from plaza.keyspace.audit.report import AuditReport, Finding, FindingGroup

__all__ = [
    "ADOPT",
    "AUDIT",
    "DRY_RUN",
    "FAILOVER",
    "LIBRARY",
    "REPAIR",
    "AuditReport",
    "AuditState",
    "Auditor",
    "Audits",
    "FailoverWatch",
    "Finding",
    "FindingGroup",
]
