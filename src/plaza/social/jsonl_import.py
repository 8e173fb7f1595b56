"""`plaza import FILE.jsonl`: imports records of another system or of `plaza export`, one per line.

Lines are imported in order, so a file that lists users before their follows needs one run. Progress is stored in Valkey
after every batch, and the next run continues there. The last batch may be imported twice, which changes nothing.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from plaza.core.valkey import Valkey
from plaza.social.inbound_sync import MAX_RECORDS, SyncResult
from plaza.social.keys import IMPORTS

# Longer lines are reported and skipped, without reading them into memory. The files of a picture are in one line.
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
# So much is in memory before it is imported, and a line more.
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be imported."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


@dataclass(slots=True)
class ImportProgress:
    """How far a file is imported."""

    offset: int = 0
    line: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)  # types of records so far


@dataclass(slots=True)
class ImportBatch:
    """Consecutive lines of one kind, and the position after them."""

    kind: str
    lines: list[int]
    records: list[Any]
    offset: int
    line: int


class RecordTarget(Protocol):
    """What imports records of some types."""

    @property
    def kinds(self) -> Sequence[str]: ...

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]: ...


class JsonlImporter:
    def __init__(self, valkey: Valkey, targets: Sequence[RecordTarget], report: Callable[[BadLine], None]) -> None:
        self.valkey = valkey
        self.targets = {kind: target for target in targets for kind in target.kinds}
        self.report = report

    async def run(self, path: Path, advance: Callable[[int], None] = lambda offset: None) -> ImportProgress:
        """Import a file from where an earlier run stopped. `advance` is called with the bytes done."""
        file_id = await asyncio.to_thread(fingerprint, path)
        progress = await self._resume(file_id)
        advance(progress.offset)
        with path.open("rb") as file:
            file.seek(progress.offset)
            for batch in self._batches(file, progress):
                await self._import(batch, progress)
                progress.offset, progress.line = batch.offset, batch.line
                advance(progress.offset)
                stored = [progress.offset, progress.line, dict(progress.counts), *sorted(progress.kinds)]
                await self.valkey.call("HSET", IMPORTS(), file_id, msgspec.json.encode(stored))
        await self.valkey.call("HDEL", IMPORTS(), file_id)
        return progress

    async def _resume(self, file_id: str) -> ImportProgress:
        stored = await self.valkey.call("HGET", IMPORTS(), file_id)
        if stored is None:
            return ImportProgress()
        offset, line, counts, *kinds = msgspec.json.decode(stored)
        return ImportProgress(offset, line, Counter(counts), set(kinds))

    async def _import(self, batch: ImportBatch, progress: ImportProgress) -> None:
        progress.kinds.add(batch.kind)
        for result in await self.targets[batch.kind].apply(batch.kind, batch.records):
            progress.counts[result.status] += 1
            if result.status == "error":
                about = f"{result.field}: " if result.field else ""
                self.report(BadLine(batch.lines[result.index], f"{about}{result.error}"))

    def _batches(self, file: Any, progress: ImportProgress) -> Iterator[ImportBatch]:
        offset, number = progress.offset, progress.line
        batch: ImportBatch | None = None
        size = 0  # of the lines in the batch
        for text in _lines(file):
            offset, number = offset + text.length, number + 1
            record = self._record(text, number, progress)
            if record is None:
                if batch is not None:
                    batch.offset, batch.line = offset, number
                continue
            kind: str = record.pop("type")
            size += text.length
            if batch is not None and (
                kind != batch.kind or len(batch.records) == MAX_RECORDS or size > MAX_BATCH_BYTES
            ):
                size = text.length
                yield batch
                batch = None
            if batch is None:
                batch = ImportBatch(kind, [], [], offset, number)
            batch.lines.append(number)
            batch.records.append(record)
            batch.offset, batch.line = offset, number
        if batch is not None:
            yield batch

    def _record(self, text: FileLine, number: int, progress: ImportProgress) -> dict[str, Any] | None:
        """Return the record of a line; None if it is empty, or invalid and reported."""
        why = f"longer than {MAX_LINE_BYTES // 1024**2} MiB"
        if text.content is not None:
            content = text.content.removeprefix(codecs.BOM_UTF8) if number == 1 else text.content
            if not content.strip():
                return None
            try:
                record = _decode(content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                why = f"not JSON: {error}"
            else:
                if isinstance(record, dict) and str(record.get("type")) in self.targets:
                    return record
                why = f"type: must be one of {', '.join(sorted(self.targets))}"
        progress.counts["error"] += 1
        self.report(BadLine(number, why))
        return None


@dataclass(frozen=True, slots=True)
class FileLine:
    content: bytes | None  # None if it is too long
    length: int


def _lines(file: Any) -> Iterator[FileLine]:
    while content := file.readline(MAX_LINE_BYTES):
        length = len(content)
        if content.endswith(b"\n") or length < MAX_LINE_BYTES:
            yield FileLine(content, length)
            continue
        while rest := file.readline(MAX_LINE_BYTES):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        yield FileLine(None, length)


def fingerprint(path: Path) -> str:
    """Return an id of the file from its size, beginning and end, without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        beginning = file.read(65_536)
        file.seek(max(0, size - 65_536))
        return hashlib.sha256(b"%d:" % size + beginning + file.read()).hexdigest()[:32]
