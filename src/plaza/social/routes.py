"""HTTP routes of users, posts, feeds and moderation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from plaza.core.auth import Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.access import ADMIN, AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import ParameterName, Routes
from plaza.core.paging import Page
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_export import AccountExport
from plaza.social.comments import Comments
from plaza.social.credentials import Credentials
from plaza.social.engagements import Engagements
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.model import (
    Comment,
    CommentId,
    CommentPage,
    DeletionResult,
    Engagement,
    FeedPage,
    NewComment,
    NewPost,
    NewRole,
    PasswordConfirmation,
    Post,
    PostEdit,
    PostId,
    Profile,
    Relation,
    TopModels,
    TopTags,
    User,
    Username,
    UserPage,
)
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users

route = Routes("social", about="Users, posts, feeds and moderation.")

IncludeUser = Annotated[
    bool, ParameterName("includeUser"), Meta(description="Whether each item includes its author's public profile.")
]
PerTag = Annotated[int, ParameterName("postsPerHashtag"), Meta(ge=1, le=20)]


def resolve_username(actor: Actor | None, username: str) -> str:
    """Return the username that a path means: `me` is the caller."""
    if username != "me":
        return username
    if actor is None:
        raise Unauthenticated("`me` needs authentication.")
    return actor.name


@route.post("/posts", access=USER, status=201, idempotent=True)
async def create_post(actor: Actor, body: NewPost, request: Request, posts: Posts) -> Post:
    """Create a post. Hashtags come from the text and from the list."""
    return await posts.create(actor, body, request.operation)


@route.get("/posts/{id}", access=PUBLIC)
async def get_post(actor: Actor | None, id: PostId, posts: Posts) -> Post:
    """Get a post."""
    return await posts.get(actor, id)


@route.patch("/posts/{id}", access=USER)
async def edit_post(actor: Actor, id: PostId, body: PostEdit, posts: Posts) -> Post:
    """Edit the text of the caller's post. The old text is kept."""
    return await posts.edit(actor, id, body)


@route.delete("/posts/{id}", access=AUTHENTICATED)
async def delete_post(actor: Actor, id: PostId, posts: Posts) -> DeletionResult:
    """Delete a post (its author or an admin)."""
    return await posts.delete(actor, id)


@route.post("/posts/{id}/like", access=USER)
async def like(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Like a post. Liking it twice changes nothing."""
    return await engagements.like(actor, id)


@route.delete("/posts/{id}/like", access=USER)
async def unlike(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Remove a like."""
    return await engagements.unlike(actor, id)


@route.get("/posts/{id}/likes", access=AUTHENTICATED)
async def likes(actor: Actor, id: PostId, page: Page, engagements: Engagements) -> UserPage:
    """List the users who like a post, latest first."""
    found = await engagements.likes(actor, id, page)
    return UserPage(found.items, found.pagination)


@route.post("/posts/{id}/bookmark", access=USER)
async def bookmark(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Bookmark a post. Bookmarking it twice changes nothing."""
    return await engagements.bookmark(actor, id)


@route.delete("/posts/{id}/bookmark", access=USER)
async def unbookmark(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Remove a bookmark."""
    return await engagements.unbookmark(actor, id)


@route.post("/posts/{id}/comments", access=USER, status=201, idempotent=True)
async def comment(actor: Actor, id: PostId, body: NewComment, request: Request, comments: Comments) -> Comment:
    """Comment on a post."""
    return await comments.create(actor, id, body, request.operation)


@route.get("/posts/{id}/comments", access=PUBLIC)
async def list_comments(actor: Actor | None, id: PostId, page: Page, comments: Comments) -> CommentPage:
    """List the comments on a post, oldest first."""
    found = await comments.page(actor, id, page)
    return CommentPage(found.items, found.pagination)


@route.delete("/comments/{id}", access=AUTHENTICATED)
async def uncomment(actor: Actor, id: CommentId, comments: Comments) -> DeletionResult:
    """Delete a comment (its author, the post's author or an admin)."""
    return await comments.delete(actor, id)


@route.patch("/posts/{id}/ban", access=ADMIN)
async def ban(actor: Actor, id: PostId, posts: Posts) -> Post:
    """Ban a post: remove it from every feed."""
    return await posts.ban(actor, id, on=True)


@route.delete("/posts/{id}/ban", access=ADMIN)
async def unban(actor: Actor, id: PostId, posts: Posts) -> Post:
    """End the ban of a post."""
    return await posts.ban(actor, id, on=False)


@route.get("/users/{username}", access=PUBLIC)
async def get_user(actor: Actor | None, username: Username, users: Users) -> User:
    """Get a profile. Private fields are included only for the user themself."""
    return await users.get(actor, resolve_username(actor, username))


@route.patch("/users/{username}", access=USER)
async def change_user(actor: Actor, username: Username, body: Profile, users: Users) -> User:
    """Update the caller's profile. Null removes a field."""
    return await users.update_profile(actor, resolve_username(actor, username), body)


@route.delete("/users/{username}", access=AUTHENTICATED, other_responses={202: DeletionResult})
async def delete_user(
    actor: Actor,
    username: Username,
    body: PasswordConfirmation,
    request: Request,
    credentials: Credentials,
    deletion: AccountDeletion,
) -> Response[DeletionResult]:
    """Delete an account and all its data (the user or an admin). Beyond 1,000 posts, 202 and deletion continues.

    To delete your own account, send its password.
    """
    name = resolve_username(actor, username)
    await credentials.require_own_password(actor, name, body.password, request.address)
    done = await deletion.delete(actor, name)
    return Response(DeletionResult(name, done), status=200 if done else 202)


@route.get("/users/me/export", access=USER, limit_first=True)
async def export(actor: Actor, exports: AccountExport) -> dict[str, Any]:
    """Export everything Plaza stores about the caller."""
    return await exports.everything(actor)


@route.patch("/users/{username}/role", access=ADMIN)
async def give_role(actor: Actor, username: Username, body: NewRole, users: Users) -> User:
    """Set a user's role."""
    return await users.set_role(actor, resolve_username(actor, username), body.role)


@route.put("/users/{username}/suspension", access=ADMIN)
async def suspend(actor: Actor, username: Username, users: Users) -> User:
    """Suspend an account and revoke its tokens."""
    return await users.suspend(actor, resolve_username(actor, username), on=True)


@route.delete("/users/{username}/suspension", access=ADMIN)
async def lift_suspension(actor: Actor, username: Username, users: Users) -> User:
    """End a suspension."""
    return await users.suspend(actor, resolve_username(actor, username), on=False)


@route.post("/users/{username}/follow", access=USER)
async def follow(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Follow a user. Following twice changes nothing."""
    return await relations.follow(actor, resolve_username(actor, username))


@route.delete("/users/{username}/follow", access=USER)
async def unfollow(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unfollow a user."""
    return await relations.unfollow(actor, resolve_username(actor, username))


@route.post("/users/{username}/block", access=USER)
async def block(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Block a user: follows end both ways, and each is hidden from the other."""
    return await relations.block(actor, resolve_username(actor, username))


@route.delete("/users/{username}/block", access=USER)
async def unblock(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unblock a user."""
    return await relations.unblock(actor, resolve_username(actor, username))


@route.post("/users/{username}/mute", access=USER)
async def mute(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Mute a user: hide their posts from the caller's feeds."""
    return await relations.mute(actor, resolve_username(actor, username))


@route.delete("/users/{username}/mute", access=USER)
async def unmute(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unmute a user."""
    return await relations.unmute(actor, resolve_username(actor, username))


@route.get("/users/me/blocked", access=USER)
async def blocked(actor: Actor, page: Page, relations: Relations) -> UserPage:
    """List the users that the caller blocks."""
    found = await relations.blocked(actor, page)
    return UserPage(found.items, found.pagination)


@route.get("/users/me/muted", access=USER)
async def muted(actor: Actor, page: Page, relations: Relations) -> UserPage:
    """List the users that the caller mutes."""
    found = await relations.muted(actor, page)
    return UserPage(found.items, found.pagination)


@route.get("/users/{username}/followers", access=PUBLIC)
async def followers(actor: Actor | None, username: Username, page: Page, relations: Relations) -> UserPage:
    """List a user's followers, latest first."""
    found = await relations.followers(actor, resolve_username(actor, username), page)
    return UserPage(found.items, found.pagination)


@route.get("/users/{username}/following", access=PUBLIC)
async def following(actor: Actor | None, username: Username, page: Page, relations: Relations) -> UserPage:
    """List the users that a user follows, latest first."""
    found = await relations.following(actor, resolve_username(actor, username), page)
    return UserPage(found.items, found.pagination)


@route.get("/users/{username}/posts", access=PUBLIC)
async def user_posts(
    actor: Actor | None, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List a user's posts, newest first."""
    found = await feeds.user_posts(actor, resolve_username(actor, username), page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/users/{username}/bookmarked", access=USER)
async def bookmarked(
    actor: Actor, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List the caller's bookmarked posts, latest first."""
    found = await feeds.bookmarked(actor, resolve_username(actor, username), page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/feed/explore", access=PUBLIC)
async def explore(actor: Actor | None, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> FeedPage:
    """List all posts, newest first."""
    found = await feeds.explore(actor, page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/feed/following", access=USER)
async def home_feed(actor: Actor, page: Page, home: HomeFeed, include_user: IncludeUser = True) -> FeedPage:
    """List the posts of the users that the caller follows, newest first."""
    found = await home.page(actor, page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/feed/hashtag/{tag}", access=AUTHENTICATED)
async def hashtag_feed(actor: Actor, tag: str, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> FeedPage:
    """List the posts with a hashtag, newest first."""
    found = await feeds.hashtag(actor, tag, page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/feed/hashtag/{tag}/ranked", access=AUTHENTICATED)
async def ranked_feed(actor: Actor, tag: str, page: Page, feeds: Feeds, include_user: IncludeUser = True) -> FeedPage:
    """List the posts with a hashtag, best first."""
    found = await feeds.ranked(actor, tag, page, users=include_user)
    return FeedPage(found.items, found.pagination)


@route.get("/search/users/newest", access=AUTHENTICATED)
async def newest_users(actor: Actor, page: Page, users: Users, role: Literal["user", "model"] = "user") -> UserPage:
    """List the newest users or models."""
    found = await users.newest(actor, role, page)
    return UserPage(found.items, found.pagination)


@route.get("/search/hashtags/top-posts", access=AUTHENTICATED, limit_first=True)
async def top_posts(
    actor: Actor, hashtags: str, feeds: Feeds, per_tag: PerTag = 5, include_user: IncludeUser = True
) -> TopTags:
    """List the best posts of each hashtag in `hashtags=a,b`."""
    return TopTags(await feeds.top_posts(actor, hashtags, per_tag, users=include_user))


@route.get("/search/models/top", access=AUTHENTICATED)
async def top_models(actor: Actor, page: Page, feeds: Feeds) -> TopModels:
    """List the models by engagement."""
    found = await feeds.top_models(actor, page)
    return TopModels(found.items, found.pagination)
