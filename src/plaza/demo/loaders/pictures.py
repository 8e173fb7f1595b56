"""Draws pictures for the small community: portraits of its users, pictures of the newest posts and of the items.

One process draws them all. Meanwhile those that are drawn are stored.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from random import Random
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.extras import is_installed
from plaza.core.paging import Page
from plaza.core.pictures import AVATAR, PictureUse
from plaza.core.process.child import signal_child
from plaza.demo import drawings
from plaza.demo.phrases import read_texts
from plaza.demo.users import CommunityUsers, DemoUser, drawn_picture_id, portrait_id
from plaza.media.pictures import PictureClaims
from plaza.media.processor import ProcessedImage, read_result
from plaza.media.uploads import Uploads
from plaza.shop.items import Items
from plaza.shop.model import Item, ItemChange
from plaza.social.avatars import Avatars
from plaza.social.keys import EXPLORE_FEED, POST
from plaza.social.posts import Posts

# Every second of the newest posts has this many pictures.
PICTURES_OF_POSTS: Final = (1, 2, 1, 1, 1, 3, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1)
POSTS_PER_PICTURE: Final = 2

# Draws and stores pictures, and returns how many.
Work = Coroutine[Any, Any, int]


class PicturesLoader:
    """Draws pictures and gives them to users, posts and items. What has a picture is left as it is."""

    def __init__(self, uploads: Uploads, claims: PictureClaims, posts: Posts, avatars: Avatars, items: Items) -> None:
        self._uploads = uploads
        self._claims = claims
        self._posts = posts
        self._avatars = avatars
        self._items = items

    @cached_property
    def _users(self) -> dict[str, DemoUser]:
        return {user.username: user for user in CommunityUsers().users}

    async def load(self, batch: int, size: int) -> int:
        """Load all pictures, which takes a few seconds; return how many there are. Without libvips there are none."""
        if not is_installed("media"):
            return 0
        async with _drawing_process() as process:
            artist = _Artist(self._uploads, process)
            work = await self._posts_to_draw(artist)
            work += await self._items_to_draw(artist)
            work += await self._portraits_to_draw(artist)
            return sum(await asyncio.gather(*work))

    async def _posts_to_draw(self, artist: _Artist) -> list[Work]:
        newest = len(PICTURES_OF_POSTS) * POSTS_PER_PICTURE
        valkey = self._posts.valkey
        ids = (await valkey.call("ZRANGE", EXPLORE_FEED(), 0, newest - 1, "REV"))[::POSTS_PER_PICTURE]
        authors = await valkey.batch([("HGET", POST(id), "user_id") for id in ids])
        chosen = zip(ids, authors, PICTURES_OF_POSTS, strict=False)
        return [self._draw_post(artist, id, author, count) for id, author, count in chosen if author in self._users]

    async def _draw_post(self, artist: _Artist, id: str, author: str, count: int) -> int:
        """Draw pictures about the topic of the author."""
        topic, actor = self._users[author].topic.name, Actor(author, "user")
        names = [f"post {id} {number}" for number in range(count)]
        scenes = [drawings.scene(topic, Random(name)) for name in names]
        pictures = [
            await artist.draw(drawn_picture_id(name), scene, actor, drawings.scene_alt(topic))
            for name, scene in zip(names, scenes, strict=True)
        ]
        await self._posts.pictures.add(actor, id, pictures)
        return count

    async def _items_to_draw(self, artist: _Artist) -> list[Work]:
        known = {name for name, *_ in read_texts("shop")["items"]}
        items = (await self._items.page(Page(limit=100))).items
        return [self._draw_item(artist, item) for item in items if item.name in known and not item.media]

    async def _draw_item(self, artist: _Artist, item: Item) -> int:
        name = f"item {item.name}"
        picture = await artist.draw(drawn_picture_id(name), drawings.item(item.name, Random(name)), None, item.name)
        await self._items.change(item.id, ItemChange(media=[picture]))
        return 1

    async def _portraits_to_draw(self, artist: _Artist) -> list[Work]:
        """Users who have not changed their avatar get their portrait."""
        addresses = await self._avatars.addresses(self._users)
        users = [user for user in self._users.values() if addresses[user.username] == user.avatar]
        return [self._draw_portrait(artist, user) for user in users]

    async def _draw_portrait(self, artist: _Artist, user: DemoUser) -> int:
        actor, drawing = Actor(user.username, user.role), drawings.portrait(Random(f"portrait {user.username}"))
        id = await artist.draw(portrait_id(user.username), drawing, actor)
        await self._claims.claim(actor, [id], PictureUse(AVATAR, user.username))
        return 1


class _Artist:
    """Draws pictures by a running process, and stores them."""

    def __init__(self, uploads: Uploads, process: Process) -> None:
        self._uploads = uploads
        self._process = process
        self._turn = asyncio.Lock()

    async def draw(self, id: str, svg: str, owner: Actor | None, alt: str = "") -> str:
        """Store a drawing under an id, once, and return the id."""
        if await self._uploads.find(id) is None:
            await self._uploads.store(await self._render(svg), id, owner, alt, origin="import")
        return id

    async def _render(self, svg: str) -> ProcessedImage:
        assert self._process.stdin is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(svg).encode() + b"\n")
            return await read_result(self._process)


@asynccontextmanager
async def _drawing_process() -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "plaza.demo.drawing_process", stdin=PIPE, stdout=PIPE, env={}, cwd="/"
    )
    try:
        yield process
    finally:
        signal_child(process, signal.SIGKILL)
        await process.wait()
