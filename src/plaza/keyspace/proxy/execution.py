"""Turns a permitted command into steps for Valkey, and their replies into one result.

Each step has one key, so that it has one slot on a cluster and one access rule. `MGET` and `EXISTS` of several keys
become several steps, and their replies are combined again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from plaza.core.encryption import FieldEncryption
from plaza.core.functions import Functions, Library
from plaza.core.keyspace import Catalogue, HiddenWhile, Key, KeyAccess
from plaza.core.sequences import pairs
from plaza.core.valkey import Arg, NotReady, ReplyError
from plaza.keyspace.proxy.access_rules import AccessRules, Caller, TargetKey
from plaza.keyspace.proxy.commands import ParsedCommand, Refused, parse_command
from plaza.keyspace.proxy.encrypted_fields import EncryptedFieldValues
from plaza.keyspace.proxy.work import FUNCTION_CALL, command_work

LIBRARY: Final = Library.read("proxy", Catalogue("proxy", {}, {}), "plaza.keyspace.proxy", "proxy")

# The largest profile that the proxy writes. Profiles are read as a whole, so they must stay as small as one page.
MAX_PROFILE_FIELDS: Final = 128
MAX_PROFILE_BYTES: Final = 32_768

# Plans of commands with a key alone, such as `HGETALL user:me`, by caller: some 3 MB.
MAX_CACHED_PLANS: Final = 1_024
MAX_CACHED_CHARACTERS: Final = 100

# The commands that reply the values of the fields that they name.
FIELD_VALUES: Final = frozenset({"HGET", "HMGET"})

Step = tuple[Arg, ...]


class LengthLimit(Struct, frozen=True):
    """How many elements a long result may have. Above `free` its length is returned instead, as the error `LONG`."""

    free: int
    most: int


NO_LENGTH_LIMIT: Final = LengthLimit(0, 0)

# (replies, whether each follow-up step found that the key is hidden) → result
Finish = Callable[[list[Any], list[bool]], Any]
Reference = tuple[Key, HiddenWhile]


class CommandPlan(Struct, frozen=True):
    """A permitted command: its steps, given the allowed length of a long result, and how to combine the replies."""

    command: ParsedCommand
    step_count: int
    steps: Callable[[LengthLimit], list[Step]]
    finish: Finish
    may_be_long: bool = False
    # Further steps that depend on the replies: they check whether the key is hidden.
    follow_up: Callable[[list[Any]], list[Step | None]] = lambda replies: []

    work: int = 0
    # What the security log calls this write if a user does it.
    recorded_as: Collection[str] = ()
    # The pattern and the owner of a key in which this write changes declared fields.
    changes: tuple[str, str] | None = None

    @property
    def writes(self) -> bool:
        return self.command.spec.writes


class CommandPlanner:
    """Plans the commands of a caller."""

    def __init__(self, rules: AccessRules, functions: Functions, encryption: FieldEncryption) -> None:
        self._rules = rules
        self._values = EncryptedFieldValues(encryption)
        self._functions = functions
        self._layout = functions.valkey.layout
        self._plan_cached = lru_cache(MAX_CACHED_PLANS)(self._plan)

    def plan(self, caller: Caller, words: list[str]) -> CommandPlan:
        """Plan a command. Raises `Refused` if it is not permitted. No round trip."""
        # Callers repeat short reads. A write has values, and what it encrypts differs each time.
        is_cached = len(words) == 2 and len(words[1]) <= MAX_CACHED_CHARACTERS
        return (self._plan_cached if is_cached else self._plan)(caller, *words)

    def _plan(self, caller: Caller, *words: str) -> CommandPlan:
        command = parse_command(list(words))
        targets = [self._rules.target(caller, key) for key in command.keys]
        for target in targets:
            if command.spec.writes:
                target.check_write(command)
            else:
                target.check_read(command)
        if command.spec.repeated == ("key",):
            return self._plan_many_keys(command, targets)
        if not targets:
            return CommandPlan(
                command, 0, lambda limit: [], lambda replies, hidden: command.spec.reply_if_absent(command)
            )
        if command.spec.writes:
            return self._plan_write(command, targets[0])
        return self._plan_one_key(command, targets[0])

    def _plan_write(self, command: ParsedCommand, target: TargetKey) -> CommandPlan:
        name, rest = command.spec.name, command.arguments[1:]
        if name == "HSET":
            rest = self._values.stored(target, rest)

        def finish(replies: list[Any], hidden: list[bool]) -> Any:
            reply = _checked_reply(command, replies[0])
            return int(reply) if name == "HINCRBY" else reply

        write = self._functions.run_command(
            "proxy_write", [target.name(self._layout)], MAX_PROFILE_FIELDS, MAX_PROFILE_BYTES, name, *rest
        )
        return CommandPlan(
            command,
            1,
            lambda limit: [write],
            finish,
            work=FUNCTION_CALL + command_work(command),
            recorded_as=target.recorded_changes(command.fields),
            changes=(target.key.pattern, target.parts[0]) if target.declares_any(command.fields) else None,
        )

    def _plan_one_key(self, command: ParsedCommand, target: TargetKey) -> CommandPlan:
        length = _length_command(command, target)
        name, rest = _sent_command(command, target)

        def finish(replies: list[Any], hidden: list[bool]) -> Any:
            if any(hidden) or _has_code(replies[0], "HIDDEN"):
                return command.spec.reply_if_absent(command)
            reply = _checked_reply(command, replies[0])
            if name in FIELD_VALUES:
                return self._field_values(command, target, rest, reply)
            return self._readable_fields(command, target, reply)

        work = FUNCTION_CALL + command_work(command)
        reference = self._rules.hiding_reference(target)
        if reference is not None:
            steps = [self._step(name, target, rest), self._read_reference(target, reference)]
            return CommandPlan(
                command,
                2,
                lambda limit: steps,
                finish,
                follow_up=lambda replies: [self._check_hidden(reference, replies[1])],
                work=work,
            )
        return CommandPlan(
            command,
            1,
            lambda limit: [self._step(name, target, rest, length, limit)],
            finish,
            may_be_long=bool(length),
            work=work,
        )

    def _field_values(self, command: ParsedCommand, target: TargetKey, fields: list[str], reply: Any) -> Any:
        """The reply of a command that names its fields, as the caller may see it."""
        values = dict(zip(fields, reply if command.spec.name == "HMGET" else [reply], strict=True))
        shown = [self._values.shown(target, field, values[field]) for field in command.fields]
        if command.spec.name == "HSTRLEN":
            return len(shown[0] or b"")
        return shown if command.spec.name == "HMGET" else shown[0]

    def _readable_fields(self, command: ParsedCommand, target: TargetKey, reply: Any) -> Any:
        """The reply of a command that returns whole hashes, without the fields that the caller may not read."""
        name = command.spec.name
        if not target.key.fields or name not in ("HGETALL", "HKEYS", "HVALS", "HSCAN"):
            return reply
        if name == "HSCAN":
            cursor, found = reply
            no_values = "NOVALUES" in command.options
            return [cursor, _readable_names(target, found) if no_values else self._readable_pairs(target, found)]
        if name == "HKEYS":
            return _readable_names(target, reply)
        readable = self._readable_pairs(target, reply)
        return readable[1::2] if name == "HVALS" else readable

    def _readable_pairs(self, target: TargetKey, flat: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for name, stored in pairs(flat):
            field = _text(name)
            if target.can_read_field(field) and (value := self._values.shown(target, field, stored)) is not None:
                found += (name, value)
        return found

    def _plan_many_keys(self, command: ParsedCommand, named: list[TargetKey]) -> CommandPlan:
        """One step per key, then one step per key that another owner's hash may hide: it reads that owner's id."""
        names = [target.name(self._layout) for target in named]
        positions = {key: i for i, key in enumerate(dict.fromkeys(names))}  # a key that is named twice is read once
        targets = list(dict(zip(names, named, strict=True)).values())
        name, count = "GET" if command.spec.name == "MGET" else command.spec.name, len(targets)
        references = {i: found for i, target in enumerate(targets) if (found := self._rules.hiding_reference(target))}
        steps = [self._step(name, target, []) for target in targets]
        steps += [self._read_reference(targets[i], reference) for i, reference in references.items()]

        def follow_up(replies: list[Any]) -> list[Step | None]:
            pairs = zip(references.values(), replies[count:], strict=True)
            return [self._check_hidden(reference, id) for reference, id in pairs]

        def finish(replies: list[Any], hidden: list[bool]) -> Any:
            absent = {i for i, is_hidden in zip(references, hidden, strict=True) if is_hidden}
            wanted = [positions[key] for key in names]
            if name == "GET":
                found = [None if _has_code(reply, "WRONGTYPE") else _checked_reply(command, reply) for reply in replies]
                return [found[i] for i in wanted]
            return sum(_checked_reply(command, replies[i]) for i in wanted if i not in absent)

        work = 1 + FUNCTION_CALL * len(steps)
        return CommandPlan(command, len(steps), lambda limit: steps, finish, follow_up=follow_up, work=work)

    def _read_reference(self, target: TargetKey, reference: Reference) -> Step:
        """Reads the id of the owner whose hash may hide the key."""
        return ("HGET", target.name(self._layout), reference[1].via)

    def _check_hidden(self, reference: Reference, id: Any) -> Step | None:
        """Checks whether that hash hides the key."""
        key, hidden = reference
        return ("HEXISTS", key.name(self._layout, _text(id)), hidden.field) if isinstance(id, bytes) else None

    def _step(
        self,
        name: str,
        target: TargetKey,
        rest: list[str],
        length: tuple[str, ...] = (),
        limit: LengthLimit = NO_LENGTH_LIMIT,
    ) -> Step:
        """One command on one key; a Lua query if the key may be hidden or the reply too long."""
        key, hiding = target.name(self._layout), self._rules.hiding_hash(target)
        if not hiding and not length:
            return (name, key, *rest)
        keys = [key, hiding[0].name(self._layout)] if hiding else [key]
        field = hiding[1] if hiding else ""
        arguments: Step = (field, limit.free, limit.most, len(length), *length, name, *rest)
        return self._functions.query_command("proxy_read", keys, *arguments)


def _sent_command(command: ParsedCommand, target: TargetKey) -> tuple[str, list[str]]:
    """The name and the arguments after the key that are sent to Valkey."""
    if command.spec.name == "HMGET":  # a field that is named a thousand times is read once
        return "HMGET", list(dict.fromkeys(command.fields))
    if command.spec.name == "HSTRLEN" and target.is_encrypted(command.fields[0]):  # the length of what the caller sees
        return "HGET", command.fields
    if command.spec.name == "HVALS" and target.key.fields:  # values can only be filtered with their field names
        return "HGETALL", []
    return command.spec.name, command.arguments[1:]


def long_length(reply: Any) -> int | None:
    """The length of a result that was not read because it is above the free limit; None for any other reply."""
    return int(reply.message.split()[1]) if _has_code(reply, "LONG") else None


def _length_command(command: ParsedCommand, target: TargetKey) -> tuple[str, ...]:
    """The command that reads the reply's length; empty if it is bounded, as for a hash with declared fields."""
    if command.spec.length_command is None:
        return ()
    length = command.spec.length_command(command) or ()
    has_fixed_fields = target.key.fields and target.key.write is KeyAccess.NONE
    return () if has_fixed_fields else length


def _has_code(reply: Any, code: str) -> bool:
    return isinstance(reply, ReplyError) and reply.code == code


def _checked_reply(command: ParsedCommand, reply: Any) -> Any:
    """The reply. Raises `Refused` for an error; a hidden key looks absent."""
    if _has_code(reply, "HIDDEN"):
        return command.spec.reply_if_absent(command)
    if isinstance(reply, ReplyError | NotReady):
        raise Refused(_without_script(reply.message))
    return reply


def _without_script(message: str) -> str:
    """The error without the Lua function and line, which callers need not see."""
    return message.partition(" script: ")[0]


def _readable_names(target: TargetKey, names: list[bytes]) -> list[bytes]:
    return [name for name in names if target.can_read_field(_text(name))]


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
