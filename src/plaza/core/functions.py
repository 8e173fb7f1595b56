"""Builds and loads the Lua libraries of domains, and calls their commands and queries.

A library is its constants and key names, the prelude (three files of `core`) and the domain's own Lua, in that order.
Its functions have names that end in a hash of the whole source, so a process always runs exactly the code it was
shipped with. During a rolling upgrade old and new libraries exist side by side. That is safe while both mean the same
by the keys. When a change breaks that, raise `GENERATION`: the first new process removes the libraries of older
generations, and an older process fails with 503 instead of running old code on new keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from plaza.core import keys as core
from plaza.core.errors import OutdatedProcess, PlazaError
from plaza.core.event_streams import SHARDS
from plaza.core.keyspace import Catalogue, Layout, join_catalogues
from plaza.core.outbox import Outbox
from plaza.core.outbox_recovery import OutboxRecovery
from plaza.core.sequences import chunks
from plaza.core.valkey import Arg, ReplyError, Valkey
from plaza.core.valkey.calls import error_reply

# Raise it in a commit that changes the meaning of an existing key.
GENERATION = 2

# A caller applies its updates within milliseconds. After this time it is stalled, and nodes reject its updates.
PROJECTION_MS = 5_000

# Owners that one call queries: short enough for others who wait for Valkey.
OWNERS_PER_CALL = 50

_PROJECTION = re.compile(r"^projection\('(\w+)'", re.MULTILINE)
PRELUDE = "".join((files("plaza.core") / f"{name}.lua").read_text() for name in ("prelude", "emission", "outbox"))


# A value that Lua gets from Python: a number, a text, a flag, a list or a table of these.
Constant = int | float | str | bool | Sequence["Constant"] | Mapping[str, "Constant"]


@dataclass(frozen=True)
class Library:
    """A domain's commands and queries: its catalogue, its constants and its Lua.

    A constant that Python and Lua both need is declared in Python and passed here: `constants={"MAX_TAGS": 30}`.
    Lua reads it as the local `MAX_TAGS`. A test with a lower limit uses `dataclasses.replace`.
    """

    name: str
    catalogue: Catalogue
    lua: str
    constants: Mapping[str, Constant] = field(default_factory=dict)
    guard: str = ""  # Lua that precedes everything else and limits what the library can do

    @classmethod
    def read(
        cls,
        name: str,
        catalogue: Catalogue,
        package: str,
        *files_in_order: str,
        base: Library | None = None,
        constants: Mapping[str, Constant] | None = None,
    ) -> Library:
        """Read the `.lua` files of a package. Each may use what precedes it; all may use the `base` library."""
        sources = [(files(package) / f"{file}.lua").read_text() for file in files_in_order]
        if base is not None:
            sources.insert(0, base.lua)
        inherited = base.constants if base is not None else {}
        return cls(name, catalogue, "\n".join(sources), {**inherited, **(constants or {})})

    def build(self, layout: Layout, projection_ms: int) -> BuiltLibrary:
        """Return the source for Valkey: key names and constants, then the prelude, then the library's own Lua."""
        keys = join_catalogues([core.CATALOGUE, self.catalogue]).lua(layout)
        constants = {
            "LIBRARY": self.name,
            "PROJECTION_MS": projection_ms,
            "CLUSTERED": layout is Layout.BRACES,
            "EVENT_SHARDS": SHARDS,
            # Under a guard it completes what other services wrote long ago, which is no news. A benchmark compares too.
            "EMITS": not self.guard,
            **self.constants,
        }
        head = "".join(f"local {name} = {_lua_literal(value)}\n" for name, value in constants.items())
        body = self.guard + head + keys + PRELUDE + self.lua
        _refuse_duplicate_projections(body)
        version = hashlib.sha256(f"{GENERATION} {body}".encode()).hexdigest()[:8]
        name = f"plaza_{self.name}_g{GENERATION}_{version}"
        return BuiltLibrary(name, version, f"#!lua name={name}\nlocal VERSION = '{version}'\n{body}")


def _lua_literal(value: Constant) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"[{_lua_literal(name)}] = {_lua_literal(each)}" for name, each in value.items()) + "}"
    return "{" + ", ".join(map(_lua_literal, value)) + "}"


def _refuse_duplicate_projections(lua: str) -> None:
    """Refuse two projections of one name: the later would replace the earlier. Valkey itself refuses two commands."""
    names = _PROJECTION.findall(lua)
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"Projection defined twice: {', '.join(duplicates)}. Rename one.")


@dataclass(frozen=True)
class BuiltLibrary:
    """A library's source, ready for FUNCTION LOAD."""

    name: str
    version: str
    code: str


class Functions:
    """The commands and queries of all libraries, on one server or a cluster."""

    def __init__(self, valkey: Valkey, libraries: Sequence[Library], *, projection_ms: int = PROJECTION_MS) -> None:
        self.valkey = valkey
        layout = Layout.BRACES if valkey.clustered else Layout.PLAIN
        self.catalogues = {library.name: library.catalogue for library in libraries}
        # Valkey refuses a library without functions.
        self.built = {library.name: library.build(layout, projection_ms) for library in libraries if library.lua}
        self._versioned_names: dict[str, str] = {}
        self.outbox = Outbox(self._run, valkey)
        self.outbox_recovery = OutboxRecovery(self._run, valkey, self.outbox)

    async def load(self) -> None:
        """Load the libraries on every primary that lacks them, and remove those of older generations."""
        for node in self.valkey.primaries():
            loaded = await _names(node)
            for name, built in self.built.items():
                await _load(node, name, built, loaded)
        await _record_use(self.valkey, self.built.values())

    async def require_loaded(self) -> None:
        """Load the libraries where one is missing; `OutdatedProcess` if a newer Plaza replaced it. A round trip each.

        A newer generation removes all libraries of older ones, so looking for one of them is enough.
        """
        name = next(iter(self.built.values())).name
        nodes = self.valkey.primaries()
        if not all(await asyncio.gather(*(node.call("FUNCTION", "LIST", "LIBRARYNAME", name) for node in nodes))):
            await self.load()

    async def run(self, command: str, keys: Sequence[str], *args: Arg) -> Any:
        """Run a command of the owner of `keys[0]` and complete its projections. One round trip on one server."""
        if self.valkey.clustered:
            return await self.outbox.run(command, keys, args)
        return await self._run(command, keys, args)

    async def run_each(self, command: str, calls: Sequence[tuple[Sequence[str], Sequence[Arg]]]) -> list[Any]:
        """Run a command for several owners, given the keys and arguments of each. One round trip on one server.

        If one fails, the others have run too.
        """
        if self.valkey.clustered:
            return await asyncio.gather(*(self.outbox.run(command, keys, args) for keys, args in calls))
        commands = [self.run_command(command, keys, *args) for keys, args in calls]
        replies = await self.valkey.batch(commands, return_errors=True)
        for i, reply in enumerate(replies):
            if isinstance(reply, ReplyError) and is_function_missing(reply):
                replies[i] = await self._run(command, *calls[i])
            elif isinstance(reply, Exception):
                raise _as_plaza_error(reply) if isinstance(reply, ReplyError) else reply
        return replies

    async def run_deferred(self, command: str, keys: Sequence[str], *args: Arg) -> Any:
        """Run a command; on a cluster its projections are completed in the background. One round trip."""
        if self.valkey.clustered:
            return await self.outbox.run_deferred(command, keys, args)
        return await self._run(command, keys, args)

    async def query(self, query: str, keys: Sequence[str], *args: Arg, raw: bool = False) -> Any:
        """Run a query. One round trip. With `raw` the reply is bytes in RESP2 shapes."""
        return await self._run(query, keys, args, read_only=True, raw=raw)

    async def query_tracked(self, query: str, keys: Sequence[str], *args: Arg, store: Callable[[Any], None]) -> Any:
        """Run a query whose keys Valkey tracks: `on_invalidate` is called when one changes. One round trip.

        `store(reply)` is called before the invalidation of any later change, so what it stores cannot become stale.
        """
        (reply,) = await self.query_with_batch(query, keys, args, (), store=store)
        return reply

    async def query_with_batch(
        self,
        query: str,
        keys: Sequence[str],
        args: Sequence[Arg],
        batch: Sequence[Sequence[Arg]],
        *,
        store: Callable[[Any], None],
    ) -> list[Any]:
        """As `query_tracked`, with a batch in the same round trip. Returns all replies, the query's first."""

        def store_and_return(reply: Any) -> Any:
            store(reply)
            return reply

        command = self.query_command(query, keys, *args)
        try:
            return await self.valkey.tracked_with_batch(command, batch, store_and_return)
        except ReplyError as error:
            if not is_function_missing(error) and not _is_untracked(error):
                raise _as_plaza_error(error) from None
        return [await self.query(query, keys, *args), *await self.valkey.batch(batch)]

    def query_command(self, query: str, keys: Sequence[str], *args: Arg) -> tuple[Arg, ...]:
        """Return a query as a Valkey command, for a batch."""
        return ("FCALL_RO", self._versioned(query), len(keys), *keys, *args)

    def run_command(self, function: str, keys: Sequence[str], *args: Arg) -> tuple[Arg, ...]:
        """Return a function that writes as a Valkey command, for a batch. On a cluster one without projections."""
        return ("FCALL", self._versioned(function), len(keys), *keys, *args)

    async def query_each(self, query: str, keys_of_each: Sequence[Sequence[str]], *args: Arg) -> list[Any]:
        """Run the same query for many owners, given the keys of each. One round trip, with a call for each node.

        A call that fails is repeated for each owner: the node lacks the library, or the slot of one of them has moved.
        """
        nodes = self.valkey.by_node([keys[0] for keys in keys_of_each])
        groups = [group for indexes in nodes for group in chunks(indexes, OWNERS_PER_CALL)]
        library, _, name = query.partition("_")
        calls = []
        for first, *others in groups:
            rest = (key for i in others for key in keys_of_each[i])
            calls.append(self.query_command(f"{library}_each", keys_of_each[first], name, len(args), *args, *rest))
        replies: list[Any] = [None] * len(keys_of_each)
        for group, found in zip(groups, await self.valkey.batch(calls, return_errors=True), strict=True):
            if isinstance(found, ReplyError):
                found = await asyncio.gather(*(self.query(query, keys_of_each[i], *args) for i in group))
            elif isinstance(found, Exception):
                raise found
            for i, reply in zip(group, found, strict=True):
                replies[i] = reply
        return replies

    async def _run(
        self, function: str, keys: Sequence[str], args: Sequence[Arg], *, read_only: bool = False, raw: bool = False
    ) -> Any:
        name = self._versioned(function)
        try:
            return await self.valkey.fcall(name, keys, *args, read_only=read_only, raw=raw)
        except ReplyError as error:
            if not is_function_missing(error):
                raise _as_plaza_error(error) from None
        # The node lacks the library: it is a new primary, or was flushed. The call has not run.
        await self.load()
        try:
            return await self.valkey.fcall(name, keys, *args, read_only=read_only, raw=raw)
        except ReplyError as error:
            raise _as_plaza_error(error) from None

    def _versioned(self, function: str) -> str:
        name = self._versioned_names.get(function)
        if name is None:
            name = self._versioned_names[function] = f"{function}_{self.built[function.partition('_')[0]].version}"
        return name

    async def remove_unused_libraries(self, unused_ms: int = 24 * 3_600_000) -> list[str]:
        """Remove libraries that no process has used for a day, and return their names. Workers call this regularly."""
        await _record_use(self.valkey, self.built.values())
        used = await self.valkey.call("HGETALL", core.LIBRARIES())
        limit = time.time() * 1000 - unused_ms
        unused = [name for name, last in used.items() if float(last) < limit]
        for node in self.valkey.primaries():
            for name in await _names(node) & set(unused):
                await node.call("FUNCTION", "DELETE", name)
        if unused:
            await self.valkey.call("HDEL", core.LIBRARIES(), *unused)
        return unused


_JSON = json.JSONDecoder()
LIBRARY_NAME: Final = re.compile(r"plaza_([a-z]+)_g(\d+)_[0-9a-f]{8}")


async def _record_use(valkey: Valkey, libraries: Iterable[BuiltLibrary]) -> None:
    now = int(time.time() * 1000)
    fields = [part for built in libraries for part in (built.name, now)]
    if fields:
        await valkey.call("HSET", core.LIBRARIES(), *fields)


async def _names(node: Valkey) -> set[str]:
    libraries = await node.call("FUNCTION", "LIST", "LIBRARYNAME", "plaza_*")
    return {library["library_name"] for library in libraries}


async def delete_libraries(valkey: Valkey) -> None:
    """Delete Plaza's libraries of all versions. A process that uses one loads it again."""
    for node in valkey.primaries():
        for name in await _names(node):
            await node.call("FUNCTION", "DELETE", name)


async def _load(node: Valkey, domain: str, built: BuiltLibrary, loaded: set[str]) -> None:
    others = [match for match in map(LIBRARY_NAME.fullmatch, loaded) if match and match[1] == domain]
    if any(int(match[2]) > GENERATION for match in others):
        raise OutdatedProcess(
            "A newer Plaza uses this Valkey and has changed what the keys mean. Install its version here, then restart."
        )
    if built.name not in loaded:
        await _load_once(node, built)
    for match in others:
        if int(match[2]) < GENERATION:
            await node.call("FUNCTION", "DELETE", match[0])


async def _load_once(node: Valkey, built: BuiltLibrary) -> None:
    try:
        await node.call("FUNCTION", "LOAD", built.code)
    except ReplyError as error:
        # Another process may have loaded the same library meanwhile.
        if f"Library '{built.name}' already exists" not in error.message:
            raise


def is_function_missing(error: ReplyError) -> bool:
    """Whether a node lacks the library. The call has not run: `load` and repeat it."""
    return "Function not found" in error.message


def _is_untracked(error: ReplyError) -> bool:
    # The Valkey user may read keys but not track them.
    return error.message.startswith("ERR CLIENT CACHING")


def error_of(text: str) -> Exception:
    """Return the Python error of an error text that a function returned for one of several things it was to do."""
    error = error_reply(text)
    return _as_plaza_error(error) if isinstance(error, ReplyError) else error


def _as_plaza_error(error: ReplyError) -> Exception:
    """Return the Python error of a Lua `fail(code, detail, extra)`, or any other error unchanged."""
    if error.code != "PLAZA":
        return error
    _, code, rest = error.message.split(" ", 2)
    members, _ = _JSON.raw_decode(rest)  # Valkey appends the place in the script
    return PlazaError.by_code.get(code, PlazaError)(**members)
