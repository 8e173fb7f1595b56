"""A program that uses Plaza's services without HTTP: it registers a user and writes a post.

python -m examples.embedding.script
"""

import asyncio

import plaza
from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.social.accounts import Accounts
from plaza.social.feeds import Feeds
from plaza.social.model import NewPost, Registration
from plaza.social.posts import Posts


async def main() -> None:
    """Write a post and print the feed."""
    async with plaza.running() as p:
        await p.get(Accounts).create(Registration(username="ana", password="correct horse battery"))
        await p.get(Posts).create(Actor("ana", "user"), NewPost("Written by a script. #hello"))
        feed = await p.get(Feeds).explore(None, Page())
        for item in feed.items:
            print(f"{item.post.username}: {item.post.content}")


if __name__ == "__main__":
    asyncio.run(main())
