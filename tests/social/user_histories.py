"""Users with data in every feature, for tests of deletion and renaming."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.social.model import NewComment, Profile, Registration
from tests.social.conftest import ADMIN, Social


async def create_active_user(social: Social, name: str) -> Actor:
    """Create a user who has used every feature. Needs the users of `create_other_users`."""
    await social.accounts.register(Registration(username=name, password="correct horse"))
    me = Actor(name, "user")
    others = [Actor(f"o{i}", "user") for i in range(6)]
    other_posts = [
        (await social.feeds.user_posts(None, other.name, Page(limit=1))).items[0].post.id for other in others
    ]
    own_posts = [await social.post(me, f"#tea #t{i}") for i in range(4)]
    for i, other in enumerate(others):
        await social.relations.follow(me, other.name)
        await social.relations.follow(other, name)
        await social.engagements.like(me, other_posts[i])
        await social.engagements.bookmark(me, other_posts[i])
        await social.comments.create(me, other_posts[i], NewComment("hi"))
        for post in own_posts:
            await social.engagements.like(other, post.id)
            await social.engagements.bookmark(other, post.id)
            await social.comments.create(other, post.id, NewComment("hi"))
    await social.posts.ban(ADMIN, own_posts[0].id, on=True)
    await social.relations.block(me, "o0")
    await social.relations.block(others[1], name)
    await social.relations.mute(me, "o2")
    await social.relations.mute(others[3], name)
    await social.users.update_profile(me, name, Profile(display_name="new"))
    await social.home.page(me, Page())
    return me


async def create_other_users(social: Social) -> None:
    """Create six users with one post each."""
    for i in range(6):
        await social.post(await social.create_user(f"o{i}", "model" if i % 2 else "user"), "#tea")
