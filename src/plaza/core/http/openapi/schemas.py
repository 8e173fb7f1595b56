"""The JSON Schemas of the document's types. msgspec makes them; what generators of clients need more is added here.

- What a response always has is required in it. msgspec only knows what a reader may leave out.
- A field of a request with a default may be left out. Its default is in the description: generators take a field with
  `default` for one that is always there.
- A list without a type has `items` that accept everything, and a choice of texts is a string: generators ask for both.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

_PREFIX = "#/components/schemas/"

# Defaults that say only that a field may be left out.
_EMPTY: tuple[Any, ...] = (None, [], {}, "")


class Schemas:
    """The schemas of all types of the document, made together so that names are unique."""

    def __init__(self, requests: Iterable[Any], responses: Iterable[Any]) -> None:
        sent, received = _distinct(requests), _distinct(responses)
        kinds = {**sent, **received}
        made, components = msgspec.json.schema_components(list(kinds.values()), ref_template=_PREFIX + "{name}")
        self._by_type = dict(zip(kinds, made, strict=True))
        self.components: dict[str, Any] = components
        in_requests = self._reachable(sent)
        for name, struct in _structs(kinds.values()).items():
            adapt = _adapt_request if name in in_requests else _adapt_response
            adapt(self.components[name], struct)
        for schema in [*self.components.values(), *made]:
            _complete_types(schema)

    def for_type(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        found = [self._by_type[str(arm)] for arm in _arms(kind)]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _reachable(self, kinds: Iterable[str]) -> set[str]:
        """The names of the components that some types use, directly or in a field."""
        found: set[str] = set()
        pending = [self._by_type[kind] for kind in kinds]
        while pending:
            names = set(_references(pending.pop())) - found
            found |= names
            pending += [self.components[name] for name in names]
        return found


def reference(name: str) -> dict[str, str]:
    """A reference to a component."""
    return {"$ref": _PREFIX + name}


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value that is left out and never null."""
    arms = [arm for arm in schema.get("anyOf", ()) if arm != {"type": "null"}]
    if len(arms) == len(schema.get("anyOf", ())):
        if None in schema.get("enum", ()):
            return {**schema, "type": "string", "enum": [value for value in schema["enum"] if value is not None]}
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **arms[0]} if len(arms) == 1 else {**rest, "anyOf": arms}


def _distinct(kinds: Iterable[Any]) -> dict[str, Any]:
    return {str(arm): arm for kind in kinds for arm in _arms(kind)}


def _arms(kind: Any) -> list[Any]:
    """The type itself, or the members of a union that msgspec cannot read as one, such as of two lists."""
    if get_origin(kind) in (types.UnionType, typing.Union):
        try:
            msgspec.inspect.type_info(kind)
        except TypeError:
            return list(get_args(kind))
    return [kind]


def _structs(kinds: Iterable[Any]) -> dict[str, type[msgspec.Struct]]:
    """The Structs that some types use, directly or in a field, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    pending: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls.__name__ in found:
                continue
            found[info.cls.__name__] = info.cls
        pending += _parts(info)
    return found


def _parts(info: Any) -> Iterator[Any]:
    """The types that a type is made of."""
    for value in (getattr(info, name) for name in getattr(info, "__struct_fields__", ())):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, msgspec.inspect.Type | msgspec.inspect.Field):
                yield item


def _adapt_response(schema: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    omits = struct.__struct_config__.omit_defaults
    required = []
    for field in msgspec.structs.fields(struct):
        described = schema["properties"][field.encode_name]
        described.pop("default", None)
        if not field.required and (omits or _default(field) is msgspec.UNSET):
            schema["properties"][field.encode_name] = without_null(described) if _default(field) is None else described
        else:
            required.append(field.encode_name)
    schema["required"] = required


def _adapt_request(schema: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        described = schema["properties"][field.encode_name]
        default = described.pop("default", None)
        if default not in _EMPTY:
            text = f"Default: `{msgspec.json.encode(default).decode()}`."
            described["description"] = f"{described.get('description', '')} {text}".strip()


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _references(schema: Any) -> Iterator[str]:
    """The names of the components that a schema refers to."""
    for node in _nodes(schema):
        if "$ref" in node:
            yield node["$ref"].removeprefix(_PREFIX)


def _complete_types(schema: Any) -> None:
    for node in _nodes(schema):
        if node.get("type") == "array" and "prefixItems" not in node:
            node.setdefault("items", {})
        choices = node.get("enum")
        if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
            node.setdefault("type", "string")


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a schema, itself included."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node
