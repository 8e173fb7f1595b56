"""HTTP in and out of posts, people and feeds. Nothing is decided here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from plaza.core.auth import Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.access import ADMIN, AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Named, Routes
from plaza.core.paging import Page
from plaza.social.deletion import Leaving
from plaza.social.export import Export
from plaza.social.feeds import Feeds
from plaza.social.home_feed import Home
from plaza.social.model import (
    Comment,
    CommentId,
    Comments,
    Deleted,
    Engagement,
    Feed,
    NewComment,
    NewPost,
    NewRole,
    Post,
    PostEdit,
    PostId,
    Profile,
    Relation,
    TopModels,
    TopTags,
    User,
    Username,
    Users,
)
from plaza.social.posts import Posts
from plaza.social.users import People

route = Routes("social", about="People, posts, feeds and moderation.")

IncludeUser = Annotated[bool, Named("includeUser"), Meta(description="Whether each item has its author's card.")]
PerTag = Annotated[int, Named("postsPerHashtag"), Meta(ge=1, le=20)]


def meant(actor: Actor | None, username: str) -> str:
    """Whom a path means: `me` is the caller."""
    if username != "me":
        return username
    if actor is None:
        raise Unauthenticated("Say who you are to ask about yourself.")
    return actor.name


@route.post("/posts", access=USER, status=201, idempotent=True)
async def create_post(actor: Actor, body: NewPost, request: Request, posts: Posts) -> Post:
    """Post something. Tags come from the text and from the list."""
    return await posts.create(actor, body, request.operation)


@route.get("/posts/{id}", access=PUBLIC)
async def get_post(actor: Actor | None, id: PostId, posts: Posts) -> Post:
    """A post."""
    return await posts.get(actor, id)


@route.patch("/posts/{id}", access=USER)
async def edit_post(actor: Actor, id: PostId, body: PostEdit, posts: Posts) -> Post:
    """Change the text of one's own post. What it said before is kept."""
    return await posts.edit(actor, id, body)


@route.delete("/posts/{id}", access=AUTHENTICATED)
async def delete_post(actor: Actor, id: PostId, posts: Posts) -> Deleted:
    """Delete a post: its author or an admin."""
    return await posts.delete(actor, id)


@route.post("/posts/{id}/like", access=USER)
async def like(actor: Actor, id: PostId, posts: Posts) -> Engagement:
    """Like a post. A second like changes nothing."""
    return await posts.like(actor, id)


@route.delete("/posts/{id}/like", access=USER)
async def unlike(actor: Actor, id: PostId, posts: Posts) -> Engagement:
    """Take a like back."""
    return await posts.unlike(actor, id)


@route.get("/posts/{id}/likes", access=AUTHENTICATED)
async def likes(actor: Actor, id: PostId, page: Page, posts: Posts) -> Users:
    """Who likes a post, latest first."""
    found = await posts.likes(actor, id, page)
    return Users(found.items, found.pagination)


@route.post("/posts/{id}/bookmark", access=USER)
async def bookmark(actor: Actor, id: PostId, posts: Posts) -> Engagement:
    """Bookmark a post. A second time changes nothing."""
    return await posts.bookmark(actor, id)


@route.delete("/posts/{id}/bookmark", access=USER)
async def unbookmark(actor: Actor, id: PostId, posts: Posts) -> Engagement:
    """Take a bookmark away."""
    return await posts.unbookmark(actor, id)


@route.post("/posts/{id}/comments", access=USER, status=201, idempotent=True)
async def comment(actor: Actor, id: PostId, body: NewComment, request: Request, posts: Posts) -> Comment:
    """Say something below a post."""
    return await posts.comment(actor, id, body, request.operation)


@route.get("/posts/{id}/comments", access=PUBLIC)
async def comments(actor: Actor | None, id: PostId, page: Page, posts: Posts) -> Comments:
    """What is said below a post, oldest first."""
    found = await posts.comments(actor, id, page)
    return Comments(found.items, found.pagination)


@route.delete("/comments/{id}", access=AUTHENTICATED)
async def uncomment(actor: Actor, id: CommentId, posts: Posts) -> Deleted:
    """Delete a comment: its author, the post's owner or an admin."""
    return await posts.uncomment(actor, id)


@route.patch("/posts/{id}/ban", access=ADMIN)
async def ban(actor: Actor, id: PostId, posts: Posts) -> Post:
    """Take a post out of every feed (admin)."""
    return await posts.ban(actor, id, on=True)


@route.delete("/posts/{id}/ban", access=ADMIN)
async def unban(actor: Actor, id: PostId, posts: Posts) -> Post:
    """Bring a banned post back (admin)."""
    return await posts.ban(actor, id, on=False)


@route.get("/users/{username}", access=PUBLIC)
async def get_user(actor: Actor | None, username: Username, people: People) -> User:
    """A profile. Private fields only to its own person."""
    return await people.get(actor, meant(actor, username))


@route.patch("/users/{username}", access=USER)
async def change_user(actor: Actor, username: Username, body: Profile, people: People) -> User:
    """Change one's own profile. Null takes a field away."""
    return await people.change(actor, meant(actor, username), body)


@route.delete("/users/{username}", access=AUTHENTICATED, also={202: Deleted})
async def delete_user(actor: Actor, username: Username, leaving: Leaving) -> Response[Deleted]:
    """Delete an account and every trace of it: its own person or an admin. Beyond 1,000 posts it goes on after 202."""
    name = meant(actor, username)
    done = await leaving.leave(actor, name)
    return Response(Deleted(name, done), status=200 if done else 202)


@route.get("/users/me/export", access=USER)
async def export(actor: Actor, exports: Export) -> dict[str, Any]:
    """Everything Plaza holds about the caller."""
    return await exports.everything(actor)


@route.patch("/users/{username}/role", access=ADMIN)
async def give_role(actor: Actor, username: Username, body: NewRole, people: People) -> User:
    """Give a role (admin)."""
    return await people.give_role(actor, meant(actor, username), body.role)


@route.put("/users/{username}/suspension", access=ADMIN)
async def suspend(actor: Actor, username: Username, people: People) -> User:
    """Suspend an account (admin). Its tokens are void at once."""
    return await people.suspend(actor, meant(actor, username), on=True)


@route.delete("/users/{username}/suspension", access=ADMIN)
async def lift_suspension(actor: Actor, username: Username, people: People) -> User:
    """Lift a suspension (admin)."""
    return await people.suspend(actor, meant(actor, username), on=False)


@route.post("/users/{username}/follow", access=USER)
async def follow(actor: Actor, username: Username, people: People) -> Relation:
    """Follow someone. A second time changes nothing."""
    return await people.follow(actor, meant(actor, username))


@route.delete("/users/{username}/follow", access=USER)
async def unfollow(actor: Actor, username: Username, people: People) -> Relation:
    """Follow someone no longer."""
    return await people.unfollow(actor, meant(actor, username))


@route.post("/users/{username}/block", access=USER)
async def block(actor: Actor, username: Username, people: People) -> Relation:
    """Block someone: follows end both ways, and each is hidden from the other."""
    return await people.block(actor, meant(actor, username))


@route.delete("/users/{username}/block", access=USER)
async def unblock(actor: Actor, username: Username, people: People) -> Relation:
    """Block someone no longer."""
    return await people.unblock(actor, meant(actor, username))


@route.post("/users/{username}/mute", access=USER)
async def mute(actor: Actor, username: Username, people: People) -> Relation:
    """Keep someone's posts out of one's feeds."""
    return await people.mute(actor, meant(actor, username))


@route.delete("/users/{username}/mute", access=USER)
async def unmute(actor: Actor, username: Username, people: People) -> Relation:
    """Let someone's posts into one's feeds again."""
    return await people.unmute(actor, meant(actor, username))


@route.get("/users/me/blocked", access=USER)
async def blocked(actor: Actor, page: Page, people: People) -> Users:
    """Whom the caller blocks."""
    found = await people.blocked(actor, page)
    return Users(found.items, found.pagination)


@route.get("/users/me/muted", access=USER)
async def muted(actor: Actor, page: Page, people: People) -> Users:
    """Whom the caller has muted."""
    found = await people.muted(actor, page)
    return Users(found.items, found.pagination)


@route.get("/users/{username}/followers", access=PUBLIC)
async def followers(actor: Actor | None, username: Username, page: Page, people: People) -> Users:
    """Who follows someone, latest first."""
    found = await people.followers(actor, meant(actor, username), page)
    return Users(found.items, found.pagination)


@route.get("/users/{username}/following", access=PUBLIC)
async def following(actor: Actor | None, username: Username, page: Page, people: People) -> Users:
    """Whom someone follows, latest first."""
    found = await people.following(actor, meant(actor, username), page)
    return Users(found.items, found.pagination)


@route.get("/users/{username}/posts", access=PUBLIC)
async def user_posts(
    actor: Actor | None, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> Feed:
    """Someone's posts, newest first."""
    found = await feeds.of_user(actor, meant(actor, username), page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/users/{username}/bookmarked", access=USER)
async def bookmarked(
    actor: Actor, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> Feed:
    """What the caller has bookmarked, latest first."""
    found = await feeds.bookmarked(actor, meant(actor, username), page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/feed/explore", access=PUBLIC)
async def explore(actor: Actor | None, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> Feed:
    """All posts, newest first."""
    found = await feeds.explore(actor, page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/feed/following", access=USER)
async def home_feed(actor: Actor, page: Page, home: Home, include_user: IncludeUser = True) -> Feed:
    """The posts of everyone the caller follows, newest first."""
    found = await home.page(actor, page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/feed/hashtag/{tag}", access=AUTHENTICATED)
async def hashtag_feed(actor: Actor, tag: str, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> Feed:
    """Posts with a tag, newest first."""
    found = await feeds.hashtag(actor, tag, page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/feed/hashtag/{tag}/ranked", access=AUTHENTICATED)
async def ranked_feed(actor: Actor, tag: str, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> Feed:
    """Posts with a tag, best first."""
    found = await feeds.ranked(actor, tag, page, users=include_user)
    return Feed(found.items, found.pagination)


@route.get("/search/users/newest", access=AUTHENTICATED)
async def newest_users(actor: Actor, page: Page, people: People, role: Literal["user", "model"] = "user") -> Users:
    """The newest users, or models."""
    found = await people.newest(actor, role, page)
    return Users(found.items, found.pagination)


@route.get("/search/hashtags/top-posts", access=AUTHENTICATED)
async def top_posts(
    actor: Actor, hashtags: str, feeds: Feeds, per_tag: PerTag = 5, include_user: IncludeUser = True
) -> TopTags:
    """The best posts of each of some tags, `hashtags=a,b`."""
    return TopTags(await feeds.top_posts(actor, hashtags, per_tag, users=include_user))


@route.get("/search/models/top", access=AUTHENTICATED)
async def top_models(actor: Actor, page: Page, feeds: Feeds) -> TopModels:
    """The models by engagement."""
    found = await feeds.top_models(actor, page)
    return TopModels(found.items, found.pagination)
