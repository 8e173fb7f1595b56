"""HTTP routes of posts, their likes, bookmarks and comments, and their moderation."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.http.access import ADMIN, AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.feeds import Feeds
from plaza.social.model import (
    BannedPostsPage,
    Comment,
    CommentEdit,
    CommentId,
    CommentPage,
    DeletionResult,
    Engagement,
    NewComment,
    NewPost,
    NoProfile,
    Post,
    PostEdit,
    PostId,
    ReplyTo,
    Username,
    UserPage,
)
from plaza.social.posts import Posts

route = Routes("posts", about="Posts, likes, bookmarks and comments.")


@route.post(
    "/posts",
    access=USER,
    status=201,
    idempotent=True,
    raises=[NoProfile],
    example={"content": "Sunset over the bay #travel", "hashtags": ["photo"]},
)
async def create_post(actor: Actor, body: NewPost, request: Request, posts: Posts) -> Post:
    """Create a post. Hashtags come from the text and from the list."""
    return await posts.create(actor, body, request.operation)


@route.get("/posts/{id}", access=PUBLIC)
async def get_post(actor: Actor | None, id: PostId, posts: Posts) -> Post:
    """Get a post."""
    return await posts.get(actor, id)


@route.patch("/posts/{id}", access=USER, example={"content": "Sunset over the bay, at last #travel"})
async def edit_post(actor: Actor, id: PostId, body: PostEdit, posts: Posts) -> Post:
    """Edit the text of the caller's post. The old text is kept."""
    return await posts.edit(actor, id, body)


@route.delete("/posts/{id}", access=AUTHENTICATED)
async def delete_post(actor: Actor, id: PostId, posts: Posts) -> DeletionResult:
    """Delete a post (its author or an admin)."""
    return await posts.delete(actor, id)


@route.post("/posts/{id}/like", access=USER)
async def like_post(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Like a post. Liking it twice changes nothing."""
    return await engagements.like(actor, id)


@route.delete("/posts/{id}/like", access=USER)
async def unlike_post(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Remove a like."""
    return await engagements.unlike(actor, id)


@route.get("/posts/{id}/likes", access=AUTHENTICATED)
async def list_post_likes(actor: Actor, id: PostId, page: Page, engagements: Engagements) -> UserPage:
    """List the users who like a post, latest first."""
    found = await engagements.likes(actor, id, page)
    return UserPage(found.items, found.pagination)


@route.post("/posts/{id}/bookmark", access=USER)
async def bookmark_post(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Bookmark a post. Bookmarking it twice changes nothing."""
    return await engagements.bookmark(actor, id)


@route.delete("/posts/{id}/bookmark", access=USER)
async def unbookmark_post(actor: Actor, id: PostId, engagements: Engagements) -> Engagement:
    """Remove a bookmark."""
    return await engagements.unbookmark(actor, id)


@route.post(
    "/posts/{id}/comments",
    access=USER,
    status=201,
    idempotent=True,
    raises=[NoProfile],
    example={"content": "Where was this?"},
)
async def create_comment(actor: Actor, id: PostId, body: NewComment, request: Request, comments: Comments) -> Comment:
    """Comment on a post, or reply to a comment on it (`reply_to`)."""
    return await comments.create(actor, id, body, request.operation)


@route.get("/posts/{id}/comments", access=PUBLIC)
async def list_comments(
    actor: Actor | None, id: PostId, page: Page, comments: Comments, reply_to: ReplyTo | None = None
) -> CommentPage:
    """List the comments on a post, oldest first: all, or those on one level of the thread."""
    found = await comments.page(actor, id, page, reply_to)
    return CommentPage(found.items, found.pagination)


@route.patch("/comments/{id}", access=USER, example={"content": "Where exactly was this?"})
async def edit_comment(actor: Actor, id: CommentId, body: CommentEdit, comments: Comments) -> Comment:
    """Edit the text of the caller's comment. The old text is kept."""
    return await comments.edit(actor, id, body)


@route.delete("/comments/{id}", access=AUTHENTICATED)
async def delete_comment(actor: Actor, id: CommentId, comments: Comments) -> DeletionResult:
    """Delete a comment (its author, the post's author or an admin). With replies it leaves a stub without text."""
    return await comments.delete(actor, id)


@route.patch("/posts/{id}/ban", access=ADMIN)
async def ban_post(actor: Actor, id: PostId, posts: Posts) -> Post:
    """Ban a post: remove it from every feed."""
    return await posts.ban(actor, id, on=True)


@route.delete("/posts/{id}/ban", access=ADMIN)
async def unban_post(actor: Actor, id: PostId, posts: Posts) -> Post:
    """End the ban of a post."""
    return await posts.ban(actor, id, on=False)


@route.get("/admin/banned-posts", access=ADMIN)
async def list_banned_posts(page: Page, feeds: Feeds, author: Username | None = None) -> BannedPostsPage:
    """List the banned posts, the latest ban first; with `author`, those of one user, the newest post first."""
    found = await feeds.banned(page, author)
    return BannedPostsPage(found.items, found.pagination)
