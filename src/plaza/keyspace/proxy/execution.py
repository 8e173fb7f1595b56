"""Turns a permitted command into steps for Valkey, and their replies into one result.

Each step has one key, so that it has one slot on a cluster and one access rule. `MGET` and `EXISTS` of several keys
become several steps, and their replies are combined again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from plaza.core.functions import Functions, Library
from plaza.core.keyspace import Catalogue, HiddenWhile, Key, KeyAccess
from plaza.core.sequences import pairs
from plaza.core.valkey import Arg, NotReady, ReplyError
from plaza.keyspace.proxy.access_rules import AccessRules, Caller, TargetKey
from plaza.keyspace.proxy.commands import ParsedCommand, Refused, parse_command

LIBRARY: Final = Library.read("proxy", Catalogue("proxy", {}, {}), "plaza.keyspace.proxy", "proxy")

# The largest profile that the proxy writes. Profiles are read as a whole, so they must stay as small as one page.
MAX_PROFILE_FIELDS: Final = 128
MAX_PROFILE_BYTES: Final = 32_768

Step = tuple[Arg, ...]
# (replies, whether each follow-up step found that the key is hidden) → result
Finish = Callable[[list[Any], list[bool]], Any]
Reference = tuple[Key, HiddenWhile]


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """A permitted command: its steps, given the largest allowed number of elements, and how to combine the replies."""

    command: ParsedCommand
    step_count: int
    steps: Callable[[int], list[Step]]
    finish: Finish
    may_be_long: bool = False
    # Further steps that depend on the replies: they check whether the key is hidden.
    follow_up: Callable[[list[Any]], list[Step | None]] = lambda replies: []

    @property
    def writes(self) -> bool:
        return self.command.spec.writes


class CommandPlanner:
    """Plans the commands of a caller."""

    def __init__(self, rules: AccessRules, functions: Functions) -> None:
        self._rules = rules
        self._functions = functions
        self._layout = functions.valkey.layout

    def plan(self, caller: Caller, words: list[str]) -> CommandPlan:
        """Plan a command. Raises `Refused` if it is not permitted. No round trip."""
        command = parse_command(words)
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
                command, 0, lambda most: [], lambda replies, hidden: command.spec.reply_if_absent(command)
            )
        return self._plan_one_key(command, targets[0])

    def _plan_one_key(self, command: ParsedCommand, target: TargetKey) -> CommandPlan:
        length = _length_command(command, target)
        rest = command.arguments[1:]
        # The values of HVALS can only be filtered together with their field names.
        name = "HGETALL" if command.spec.name == "HVALS" and target.key.fields else command.spec.name

        def finish(replies: list[Any], hidden: list[bool]) -> Any:
            if any(hidden):
                return command.spec.reply_if_absent(command)
            reply = _checked_reply(command, replies[0])
            return int(reply) if name == "HINCRBY" else _readable_fields(command, target, reply)

        if command.spec.writes:
            key = target.name(self._layout)
            write = self._functions.run_command(
                "proxy_write", [key], MAX_PROFILE_FIELDS, MAX_PROFILE_BYTES, name, *rest
            )
            return CommandPlan(command, 1, lambda most: [write], finish)
        reference = self._rules.hiding_reference(target)
        if reference is not None:
            steps = [self._step(name, target, rest, (), 0), self._read_reference(target, reference)]
            return CommandPlan(
                command,
                2,
                lambda most: steps,
                finish,
                follow_up=lambda replies: [self._check_hidden(reference, replies[1])],
            )
        return CommandPlan(
            command,
            1,
            lambda most: [self._step(name, target, rest, length, most)],
            finish,
            may_be_long=bool(length),
        )

    def _plan_many_keys(self, command: ParsedCommand, targets: list[TargetKey]) -> CommandPlan:
        """One step per key, then one step per key that another owner's hash may hide: it reads that owner's id."""
        name, count = "GET" if command.spec.name == "MGET" else command.spec.name, len(targets)
        references = {i: found for i, target in enumerate(targets) if (found := self._rules.hiding_reference(target))}
        steps = [self._step(name, target, [], (), 0) for target in targets]
        steps += [self._read_reference(targets[i], reference) for i, reference in references.items()]

        def follow_up(replies: list[Any]) -> list[Step | None]:
            pairs = zip(references.values(), replies[count:], strict=True)
            return [self._check_hidden(reference, id) for reference, id in pairs]

        def finish(replies: list[Any], hidden: list[bool]) -> Any:
            absent = {i for i, is_hidden in zip(references, hidden, strict=True) if is_hidden}
            if name == "GET":
                return [None if _has_code(reply, "WRONGTYPE") else _checked_reply(command, reply) for reply in replies]
            return sum(_checked_reply(command, reply) for i, reply in enumerate(replies[:count]) if i not in absent)

        return CommandPlan(command, len(steps), lambda most: steps, finish, follow_up=follow_up)

    def _read_reference(self, target: TargetKey, reference: Reference) -> Step:
        """Reads the id of the owner whose hash may hide the key."""
        return ("HGET", target.name(self._layout), reference[1].via)

    def _check_hidden(self, reference: Reference, id: Any) -> Step | None:
        """Checks whether that hash hides the key."""
        key, hidden = reference
        return ("HEXISTS", key.name(self._layout, _text(id)), hidden.field) if isinstance(id, bytes) else None

    def _step(self, name: str, target: TargetKey, rest: list[str], length: tuple[str, ...], most: int) -> Step:
        """One command on one key; a Lua query if the key may be hidden or the reply too long."""
        key, hiding = target.name(self._layout), self._rules.hiding_hash(target)
        if not hiding and not length:
            return (name, key, *rest)
        keys = [key, hiding[0].name(self._layout)] if hiding else [key]
        field = hiding[1] if hiding else ""
        arguments: Step = (field, most, len(length), *length, name, *rest)
        return self._functions.query_command("proxy_read", keys, *arguments)


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


def _readable_fields(command: ParsedCommand, target: TargetKey, reply: Any) -> Any:
    """The reply of a command that returns whole hashes, without the fields that the caller may not read."""
    name = command.spec.name
    if not target.key.fields or name not in ("HGETALL", "HKEYS", "HVALS", "HSCAN"):
        return reply
    if name == "HSCAN":
        cursor, found = reply
        no_values = "NOVALUES" in command.options
        return [cursor, _readable_names(target, found) if no_values else _readable_pairs(target, found)]
    if name == "HKEYS":
        return _readable_names(target, reply)
    pairs = _readable_pairs(target, reply)
    return pairs[1::2] if name == "HVALS" else pairs


def _readable_names(target: TargetKey, names: list[bytes]) -> list[bytes]:
    return [name for name in names if target.can_read_field(_text(name))]


def _readable_pairs(target: TargetKey, flat: list[bytes]) -> list[bytes]:
    return [part for name, value in pairs(flat) if target.can_read_field(_text(name)) for part in (name, value)]


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
