"""Starts from keys that another service wrote by the documents: completes what Plaza needs besides them."""

from __future__ import annotations

from plaza.app import Plaza
from plaza.keyspace.audit import ADOPT, AuditReport, Audits
from plaza.keyspace.audit.auditor import OnProgress
from plaza.search.rebuild import IndexRebuild


async def adopt(plaza: Plaza, on_progress: OnProgress = lambda report: None) -> AuditReport:
    """Build the additional keys and the search index, and report what contradicts the documents.

    `plaza` must protect documented keys (`running(…, protects_documented=True)`). After an interruption, the next run
    continues where this one stopped.
    """
    audits = plaza.get(Audits)
    report = await audits.run(ADOPT, on_progress)
    if IndexRebuild in plaza.services:
        await plaza.get(IndexRebuild).run_or_resume()
    await audits.auditor.checkpoints.clear()
    return report
