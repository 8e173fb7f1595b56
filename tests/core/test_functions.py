"""Libraries are built, loaded and called. A process runs the code it was shipped with, or fails as outdated."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from plaza.core import functions as functions_module
from plaza.core.errors import OutdatedProcess, PlazaError
from plaza.core.functions import Constant, Functions, Library
from plaza.core.keyspace import Catalogue
from plaza.core.valkey import REQUEST_USAGE, ReplyError, RequestUsage, Valkey
from tests.core.ledger import BOX_ITEMS, BOXES_TOP, LIBRARY, SHELVES_TOP


class NotANumber(PlazaError):
    status, title, code = 422, "Not a number", "not_a_number"


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    return functions


async def library_names(valkey: Valkey) -> list[set[str]]:
    replies = [await node.call("FUNCTION", "LIST", "LIBRARYNAME", "plaza_*") for node in valkey.primaries()]
    return [{library["library_name"] for library in reply} for reply in replies]


async def test_a_command_changes_its_source_data_and_projections(functions: Functions, redis_client: Any) -> None:
    assert await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3) == "3"
    assert await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "bolt", "2.5") == "5.5"
    assert await redis_client.zscore(BOXES_TOP(), "b1") == 5.5
    assert await redis_client.zscore(SHELVES_TOP(), "s1") == 5.5


async def test_a_query_cannot_write(functions: Functions, redis_client: Any) -> None:
    await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3)
    assert await functions.query("ledger_total", [BOX_ITEMS("b1")]) == "3"
    with pytest.raises(ReplyError, match="read-only"):
        await functions.query("ledger_write_in_query", [BOX_ITEMS("b1")])


async def test_a_query_with_a_batch_returns_all_replies_in_order(functions: Functions, valkey: Valkey) -> None:
    await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3)
    stored: list[str] = []
    batch = [("HLEN", BOX_ITEMS("b1")), ("EXISTS", BOX_ITEMS("b2"))]
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    replies = await functions.query_with_batch("ledger_total", [BOX_ITEMS("b1")], [], batch, store=stored.append)
    REQUEST_USAGE.reset(mark)
    assert (replies, stored) == (["3", 1, 0], ["3"])
    assert usage.trips == (2 if valkey.clustered else 1)
    invalidated: list[list[str] | None] = []
    valkey.on_invalidate(invalidated.append)
    await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 4)
    assert [BOX_ITEMS("b1")] in invalidated


async def test_fail_in_lua_raises_the_python_error_and_changes_nothing(functions: Functions, redis_client: Any) -> None:
    with pytest.raises(NotANumber) as caught:
        await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", "many")
    assert caught.value.detail == "The quantity is not a number."
    assert caught.value.extra == {"field": "quantity"}
    assert await redis_client.exists(BOX_ITEMS("b1")) == 0


async def test_loading_again_changes_nothing(functions: Functions, valkey: Valkey) -> None:
    before = await library_names(valkey)
    await functions.load()
    assert await library_names(valkey) == before
    assert all(len(names) == 1 for names in before)


async def test_a_node_that_lost_its_library_gets_it_at_the_next_call(functions: Functions, valkey: Valkey) -> None:
    for node in valkey.primaries():
        await node.call("FUNCTION", "FLUSH")
    assert await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3) == "3"


async def test_during_a_rolling_upgrade_each_process_runs_its_own_code(functions: Functions, valkey: Valkey) -> None:
    newer = Functions(valkey, [changed(LIBRARY)])
    await newer.load()
    assert await functions.query("ledger_total", [BOX_ITEMS("b1")]) == "0"
    assert await newer.query("ledger_total", [BOX_ITEMS("b1")]) == "0 pieces"


async def test_a_new_generation_stops_old_processes(
    functions: Functions, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(functions_module, "GENERATION", functions_module.GENERATION + 1)
        newer = Functions(valkey, [LIBRARY])  # although the Lua is the same
        await newer.load()
    assert all(len(names) == 1 for names in await library_names(valkey))
    with pytest.raises(OutdatedProcess):
        await functions.query("ledger_total", [BOX_ITEMS("b1")])
    with pytest.raises(OutdatedProcess):
        await functions.load()
    assert await newer.query("ledger_total", [BOX_ITEMS("b1")]) == "0"


async def test_two_projections_of_one_name_are_refused(valkey: Valkey) -> None:
    twice = dataclasses.replace(LIBRARY, lua=LIBRARY.lua + "\nprojection('ranked', function() end)")
    with pytest.raises(ValueError, match="Projection defined twice: ranked"):
        Functions(valkey, [twice])


async def test_unused_libraries_are_removed(functions: Functions, valkey: Valkey) -> None:
    old = Functions(valkey, [changed(LIBRARY)])
    await old.load()
    (gone,) = (built.name for built in old.built.values())
    assert await functions.remove_unused_libraries() == []
    await valkey.call("HSET", "plaza:libraries", gone, 1)
    assert await functions.remove_unused_libraries() == [gone]
    assert all(names == {functions.built["ledger"].name} for names in await library_names(valkey))


def changed(library: Library) -> Library:
    lua = library.lua.replace(
        "return text(total(keys[1]))\nend)\n\nquery('write_in_query'",
        "return text(total(keys[1])) .. ' pieces'\nend)\n\nquery('write_in_query'",
    )
    assert lua != library.lua
    return dataclasses.replace(library, lua=lua)


async def test_two_functions_of_one_name_are_refused_at_load(valkey: Valkey) -> None:
    twice = dataclasses.replace(LIBRARY, lua="query('total', function() end) " + LIBRARY.lua)
    with pytest.raises(ReplyError, match="already exists"):
        await Functions(valkey, [twice]).load()


async def test_one_query_for_many_owners_is_one_round_trip(functions: Functions, valkey: Valkey) -> None:
    boxes = [f"b{i}" for i in range(20)]
    for i, box in enumerate(boxes):
        await functions.run("ledger_put", [BOX_ITEMS(box)], box, "s1", "nut", i)
    usage = RequestUsage()
    REQUEST_USAGE.set(usage)
    keys = [[BOX_ITEMS(box)] for box in boxes]
    assert await functions.query_each("ledger_total", keys) == [str(i) for i in range(20)]
    assert usage.trips == 1
    for node in valkey.primaries():
        await node.call("FUNCTION", "FLUSH")
    assert await functions.query_each("ledger_total", keys) == [str(i) for i in range(20)]


async def test_a_command_runs_for_several_owners_also_if_one_fails(
    functions: Functions, valkey: Valkey, redis_client: Any
) -> None:
    def put(box: str, quantity: str) -> tuple[list[str], list[str]]:
        return [BOX_ITEMS(box)], [box, "s1", "nut", quantity]

    assert await functions.run_each("ledger_put", [put("b1", "1"), put("b2", "2")]) == ["1", "2"]
    with pytest.raises(NotANumber):
        await functions.run_each("ledger_put", [put("b1", "many"), put("b2", "3")])
    assert await redis_client.zscore(BOXES_TOP(), "b2") == 3
    for node in valkey.primaries():
        await node.call("FUNCTION", "FLUSH")
    assert await functions.run_each("ledger_put", [put("b1", "4"), put("b2", "5")]) == ["4", "5"]


async def test_constants_are_locals_of_the_library(valkey: Valkey) -> None:
    lua = """
query('constants', function()
  return {MAX_TAGS, tostring(RATIO), tostring(STRICT), TITLE, SIZES[2], WEIGHTS.like}
end)
"""
    constants: dict[str, Constant] = {
        "MAX_TAGS": 30,
        "RATIO": 0.25,
        "STRICT": True,
        "TITLE": 'a "b"',
        "SIZES": [1, 2],
        "WEIGHTS": {"like": 3},
    }
    functions = Functions(valkey, [Library("constants", Catalogue("constants", {}, {}), lua, constants)])
    await functions.load()
    assert await functions.query("constants_constants", ["any"]) == [30, "0.25", "true", 'a "b"', 2, 3]


def test_a_library_gets_the_constants_of_its_base() -> None:
    base = dataclasses.replace(LIBRARY, constants={"LOW": 1, "HIGH": 2})
    library = Library.read(
        "other", LIBRARY.catalogue, "tests.core.ledger", "functions", base=base, constants={"HIGH": 3}
    )
    assert library.constants == {"LOW": 1, "HIGH": 3}
