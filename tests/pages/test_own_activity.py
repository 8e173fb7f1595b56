"""What users find about themselves and others: the tabs of the own profile, trending tags, and users to follow."""

from __future__ import annotations

from plaza.app import Plaza
from plaza.core.auth import Actor
from plaza.social.model import NewPost, Profile
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.suggestions import SocialSuggestions
from plaza.social.users import Users
from tests.pages.conftest import PageClient


async def test_the_own_profile_has_articles_votes_and_comments(ana: PageClient, url: str, plaza: Plaza) -> None:
    post = (await plaza.get(Posts).create(Actor("ana", "user"), NewPost("hello"))).id
    await ana.submit(f"/app/posts/{post}/comments", content="Under a post.")
    await ana.submit("/app/articles", page="/app/articles/new", title="A link", link="https://example.org/")
    await ana.submit("/app/articles/1/comments", page="/app/articles/1", content="Under an article.")
    assert "/app/you/votes" in (await ana.get("/app/people/ana")).text
    for path, *texts in (
        ("/app/you/articles", "A link"),
        ("/app/you/votes", "A link"),
        ("/app/you/comments", "Under a post.", "on <bdi>a post by ana: hello</bdi>"),
        ("/app/you/comments/articles", "Under an article.", "on <bdi>A link</bdi>"),
    ):
        page = await ana.get(path)
        assert (page.status_code, [text in page.text for text in texts]) == (200, [True] * len(texts)), path
    async with PageClient(url) as bob:
        await bob.sign_up("bob")
        assert "/app/you/votes" not in (await bob.get("/app/people/ana")).text
        assert "A link" not in (await bob.get("/app/you/votes")).text.split("<main")[1].split("</main>")[0]


async def test_suggested_users_are_followed_by_others_and_never_hidden(ana: PageClient, url: str, plaza: Plaza) -> None:
    names = ("bob", "cy", "dora", "eva", "finn")
    for name in names:
        async with PageClient(url) as client:
            await client.sign_up(name)
    relations, me = plaza.get(Relations), Actor("ana", "user")
    for follower, followed in (("ana", "bob"), ("ana", "cy"), ("bob", "dora"), ("cy", "dora"), ("bob", "cy")):
        await relations.follow(Actor(follower, "user"), followed)
    for followed in ("eva", "finn", "ana"):
        await relations.follow(Actor("bob", "user"), followed)
    await relations.block(me, "eva")
    await relations.mute(me, "finn")
    found = await plaza.get(SocialSuggestions).users_to_follow(me, 5)
    assert [(each.user.username, each.mutual) for each in found] == [("dora", 2)]
    page = (await ana.get("/app/following")).text
    assert "People to follow" in page
    assert "Followed by 2 you follow" in page
    await plaza.get(Users).suspend(Actor("root", "admin"), "dora", on=True)
    assert await plaza.get(SocialSuggestions).users_to_follow(me, 5) == []
    await plaza.get(Users).suspend(Actor("root", "admin"), "dora", on=False)
    await relations.block(Actor("dora", "user"), "ana")
    assert "People to follow" not in (await ana.get("/app/following")).text


async def test_users_who_follow_nobody_are_suggested_the_top_models(ana: PageClient, url: str, plaza: Plaza) -> None:
    users, posts, root = plaza.get(Users), plaza.get(Posts), Actor("root", "admin")
    for name in ("bob", "cy", "dora"):
        async with PageClient(url) as client:
            await client.sign_up(name)
        await users.set_role(root, name, "model")
        for _ in range(2 if name == "cy" else 1):
            post = await posts.create(Actor(name, "model"), NewPost("hello"))
            await ana.submit(f"/app/posts/{post.id}/like", on="1")
    await users.update_profile(Actor("cy", "model"), "cy", Profile(bio="Keeps bees."))
    await plaza.get(Relations).mute(Actor("ana", "user"), "dora")
    found = await plaza.get(SocialSuggestions).users_to_follow(Actor("ana", "user"), 5)
    assert [(each.user.username, each.mutual) for each in found] == [("cy", 0), ("bob", 0)]
    page = (await ana.get("/app/following")).text
    assert "Their posts have the most likes, comments and bookmarks." in page
    assert "Keeps bees." in page
    to_cy = await plaza.get(SocialSuggestions).users_to_follow(Actor("cy", "model"), 5)
    assert {each.user.username for each in to_cy} == {"bob", "dora"}, "never themselves"


async def test_trending_tags_are_those_of_most_authors(guest: PageClient, plaza: Plaza) -> None:
    posts = plaza.get(Posts)
    async with PageClient(str(guest.base_url)) as client:
        await client.sign_up("ana")
    async with PageClient(str(guest.base_url)) as client:
        await client.sign_up("bob")
    for name, text in (("ana", "#rain #tea"), ("ana", "#tea"), ("bob", "#rain")):
        await posts.create(Actor(name, "user"), NewPost(text))
    assert [(tag.name, tag.authors) for tag in await plaza.get(SocialSuggestions).trending_tags(5)] == [("rain", 2)]
