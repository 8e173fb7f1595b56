"""A small domain for tests of projections: boxes of items on shelves.

A box owns its items. Its rank is a projection of its total. Its shelf, another owner, stores the total by a performed
command, and has a rank of its own: a chain of owners, as a post's points reach a leaderboard through its author.
"""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.core.keyspace import Catalogue, Key

BOX_ITEMS = Key("box:<box>:items", "hash", "What is in a box.", contains="item → quantity", owner="box")
BOXES_TOP = Key("boxes:top", "zset", "Boxes by total.", contains="box", score="sum of the box's quantities")
SHELF_BOXES = Key("shelf:<shelf>:boxes", "hash", "Totals of a shelf's boxes.", contains="box → total", owner="shelf")
SHELVES_TOP = Key("shelves:top", "zset", "Shelves by total.", contains="shelf", score="sum of the boxes' totals")

CATALOGUE = Catalogue.from_module("ledger", globals(), {"box": "[a-z0-9-]+", "shelf": "[a-z0-9-]+"})
LIBRARY = Library.read("ledger", CATALOGUE, "tests.core.ledger", "functions")
