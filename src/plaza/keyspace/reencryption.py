"""Encrypts stored values again with the present data key, so that an earlier key can be removed.

A run changes only what another key encrypted, so it can be repeated, and stopped at any point. It may run beside
servers that have both keys: a value that changes meanwhile is left alone, and the server wrote it with the present key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from plaza.core.encryption import EncryptedFields, Undecryptable
from plaza.core.functions import Functions
from plaza.core.keyspace import Catalogue
from plaza.core.valkey import scan_pages
from plaza.keyspace.family_matching import KeyFamilies

# Names per SCAN page, and so commands per batch: Valkey serves other clients in between.
PAGE_KEYS: Final = 200


class ReencryptionReport(Struct):
    """What a run did: values that it encrypted, and those that no data key decrypts."""

    encrypted: int = 0
    unreadable: int = 0


class Reencryption:
    def __init__(
        self, functions: Functions, catalogues: Sequence[Catalogue], encrypted: Sequence[EncryptedFields]
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._families = KeyFamilies(catalogues, functions.valkey.layout)
        self._encrypted = {fields.key.pattern: fields for fields in encrypted}

    async def run(self, *, plain_too: bool = False) -> ReencryptionReport:
        """Encrypt every value with the present key. Reads all names of hashes, two round trips for each `PAGE_KEYS`.

        `plain_too` also encrypts fields that another service or an earlier release wrote in plain text.
        """
        report = ReencryptionReport()
        for node in self._valkey.primaries():
            async for names in scan_pages(node, "SCAN", count=PAGE_KEYS, type="hash"):
                await self._renew_page(names, report, plain_too)
        return report

    async def _renew_page(self, names: Sequence[str], report: ReencryptionReport, plain_too: bool) -> None:
        matches = [(name, match) for name in names if (match := self._families.match(name))]
        found = [
            (name, self._encrypted[family.key.pattern], ids)
            for name, (family, ids) in matches
            if family.key.pattern in self._encrypted
        ]
        rows = await self._valkey.batch([("HMGET", name, *fields.fields) for name, fields, _ in found]) if found else []
        changes = []
        for (name, encrypted, ids), values in zip(found, rows, strict=True):
            for field, stored in zip(encrypted.fields, values, strict=True):
                renewed = _renewed(encrypted, ids, field, stored, report, plain_too)
                if renewed != stored:
                    changes.append((name, field, stored, renewed))
        run = self._functions.run
        done = await asyncio.gather(*(run("audit_replace_field", [name], *change) for name, *change in changes))
        report.encrypted += sum(done)


def _renewed(
    encrypted: EncryptedFields,
    ids: tuple[str, ...],
    field: str,
    stored: str | None,
    report: ReencryptionReport,
    plain_too: bool,
) -> str | None:
    if stored is None:
        return None
    try:
        return encrypted.renew(ids, field, stored, plain_too)
    except Undecryptable:
        report.unreadable += 1
        return stored
