"""Writes random data until it is killed: `python -m tests.social.random_writer_process URL SEED`."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable, Callable

from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.encryption import FieldEncryption
from plaza.core.errors import PlazaError
from plaza.core.functions import Functions
from plaza.core.keyspace import use_layout
from plaza.core.pictures import NoAvatars
from plaza.core.settings import Settings
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.library import LIBRARY
from plaza.social.model import NewComment, NewPost, PostEdit
from plaza.social.post_reader import PostReader
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.timeouts import connect_for_test

USERS = [Actor(f"p{i}", "model" if i % 2 else "user") for i in range(8)]
ADMIN = Actor("root", "admin")
CONCURRENT_WRITERS = 24
# Commands of a killed process can arrive during this time. Later ones are refused.
PROJECTION_MS = 400


async def main(url: str, seed: int) -> None:
    valkey = await connect_for_test(url)
    use_layout(valkey.layout)
    functions, clock = Functions(valkey, [LIBRARY, paging.LIBRARY], projection_ms=PROJECTION_MS), ManualClock()
    await functions.load()
    auth, private = Auth(Settings(jwt_secret="s" * 32, api_key="k" * 32)), PrivateFields(FieldEncryption(["d" * 32]))
    reader = PostReader(functions)
    users = Users(reader, auth, clock, private)
    relations = Relations(functions, users, clock)
    posts = Posts(functions, reader, users, clock)
    engagements, comments = Engagements(functions, posts), Comments(functions, posts, NoAvatars())
    dice, ids = random.Random(seed), list[str]()

    async def write_once() -> None:
        user, other = dice.choice(USERS), dice.choice(USERS)
        id = dice.choice(ids) if ids else "00000000-0000-4000-8000-000000000000"
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: engagements.like(user, id),
            lambda: engagements.unlike(user, id),
            lambda: engagements.bookmark(user, id),
            lambda: engagements.unbookmark(user, id),
            lambda: comments.create(user, id, NewComment("hi")),
            lambda: posts.edit(user, id, PostEdit(f"#t{dice.randrange(4)}")),
            lambda: relations.follow(user, other.name),
            lambda: relations.unfollow(user, other.name),
            lambda: relations.block(user, other.name),
            lambda: relations.unblock(user, other.name),
            lambda: posts.ban(ADMIN, id, on=dice.random() < 0.5),
            lambda: posts.delete(ADMIN, id),
        ]
        if dice.random() < 0.1:
            post = await posts.create(user, NewPost(f"#t{dice.randrange(4)} #all"))
            ids.append(post.id)
        else:
            await dice.choices(operations, [9, 5, 9, 5, 6, 3, 6, 3, 1, 1, 1, 1])[0]()

    async def write_forever() -> None:
        while True:
            with contextlib.suppress(PlazaError):
                await write_once()

    print("go", flush=True)
    await asyncio.gather(*(write_forever() for _ in range(CONCURRENT_WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
