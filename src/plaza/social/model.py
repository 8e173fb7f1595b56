"""Social's types, and pure functions: reading hashes, points and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.comment_tree import UUID, CommentText, reply_to_parameter
from plaza.core.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Pagination
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.pictures import AltText, Picture, PictureId, decode_pictures
from plaza.core.roles import ROLES, Role
from plaza.core.text_patterns import CONTROL, PLAIN_LINE, USERNAME_PATTERN, VISIBLE_TEXT
from plaza.core.tokens import is_username
from plaza.core.validation_messages import described_pattern
from plaza.social.hashtags import MAX_TAG_CHARACTERS, MAX_TAGS, tags_in
from plaza.social.keys import PRIVATE

# Python and JavaScript differ in what `\s` matches, so the differences are listed.
_BLANK = r"\s\x00-\x1f\x7f-\x9f\ufeff"
_LONG = described_pattern("Must not contain control characters", rf"^[^{CONTROL}]*$(?!\n)")
_URL = described_pattern(
    "Must be a URL that begins with https://, http:// or /",
    # Browsers read `//host` and `/\host` as another host.
    rf"^(|https?://[^{_BLANK}]+|/(?![/\\])[^{_BLANK}]*)$(?!\n)",
)
_ID = described_pattern("Must be a UUID in lower case", rf"^{UUID}$(?!\n)")

# Names that look official. Other systems may sync such users, and operators may have them.
RESERVED_USERNAMES: Final = frozenset({"admin", "support", "system", "root", "plaza"})
MAX_CONTENT_CHARACTERS: Final = 10_000
MAX_PICTURES: Final = 4

# Registration also checks `core.tokens.is_username`, which refuses `me` and `AUTH`.
Username = Annotated[str, Meta(pattern=USERNAME_PATTERN, description="Case-sensitive.", examples=["ana"])]
PostId = Annotated[str, Meta(pattern=_ID, examples=["0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f"])]
CommentId = Annotated[str, Meta(pattern=_ID, examples=["7d1e4c3b-2f5a-4b8e-8c6d-1a9f0e2b3c4d"])]
ReplyTo = Annotated[str, reply_to_parameter(UUID)]
Content = Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT_CHARACTERS, pattern=VISIBLE_TEXT)]
TextLine = Annotated[str, Meta(max_length=200, pattern=PLAIN_LINE)]
LongText = Annotated[str, Meta(max_length=2_000, pattern=_LONG)]
Url = Annotated[str, Meta(max_length=2_000, pattern=_URL)]
Password = Annotated[str, Meta(min_length=8, max_length=256)]
AnyPassword = Annotated[str, Meta(max_length=256)]
Millis = Annotated[int, Meta(ge=0, le=253_402_300_799_999, description="Unix milliseconds.")]
Tag = Annotated[str, Meta(min_length=1, max_length=MAX_TAG_CHARACTERS)]

# The profile fields that the user's posts copy.
COPIED_FIELDS: Final = ("avatar", "display_name", "role")
PUBLIC_FIELDS: Final = (
    "username",
    "display_name",
    "bio",
    "avatar",
    "links",
    "role",
    "postCount",
    "followerCount",
    "followingCount",
    "created_at",
)
PRIVATE_FIELDS: Final = tuple(PRIVATE)
POST_FIELDS: Final = (
    "id",
    "user_id",
    "content",
    "media_url",
    "created_at",
    "edited_at",
    "hashtags",
    "username",
    "avatar",
    "display_name",
    "user_role",
    "likesCount",
    "commentsCount",
    "bookmarksCount",
    "banned",
    "banned_at",
    "banned_by",
    "media",
)


class NoProfile(NotFound):
    title, code = "No user has this name", "no_profile"


class UsernameTaken(Conflict):
    title, code = "This username is taken", "username_taken"


class WrongPassword(Unauthenticated):
    title, code = "Username or password is wrong", "wrong_password"


class InvalidRefreshToken(Unauthenticated):
    title, code = "Invalid refresh token", "bad_refresh_token"


class AccountSuspended(Forbidden):
    title, code = "This account is suspended", "suspended"


class SelfRelation(Invalid):
    title, code = "Not allowed with yourself", "not_yourself"


class Profile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The profile fields that a user can set. Null removes a field."""

    display_name: TextLine | UnsetType | None = UNSET
    bio: LongText | UnsetType | None = UNSET
    avatar: Url | UnsetType | None = UNSET
    links: LongText | UnsetType | None = UNSET
    first_name: TextLine | UnsetType | None = UNSET
    last_name: TextLine | UnsetType | None = UNSET
    email: TextLine | UnsetType | None = UNSET
    phone: TextLine | UnsetType | None = UNSET
    phone_number: TextLine | UnsetType | None = UNSET
    address: LongText | UnsetType | None = UNSET
    date_of_birth: TextLine | UnsetType | None = UNSET
    birth_date: TextLine | UnsetType | None = UNSET
    ssn: TextLine | UnsetType | None = UNSET
    credit_card: TextLine | UnsetType | None = UNSET
    bank_account: TextLine | UnsetType | None = UNSET
    ip_address: TextLine | UnsetType | None = UNSET
    device_id: TextLine | UnsetType | None = UNSET

    def changes(self) -> dict[str, str | None]:
        """Return the fields that were sent; None for one to remove."""
        values = ((name, getattr(self, name)) for name in PROFILE_FIELDS)
        return {name: value for name, value in values if value is not UNSET}


PROFILE_FIELDS: Final = Profile.__struct_fields__


class Registration(Profile, kw_only=True):
    username: Username
    password: Password


class PasswordLogin(msgspec.Struct, forbid_unknown_fields=True):
    """`code` is a one-time or recovery code, for accounts with a second factor; `passkey` serves in its place."""

    username: Username
    password: AnyPassword
    code: Annotated[str, Meta(min_length=6, max_length=40)] | None = None
    passkey: PasskeyCredential | None = None


class PasskeyLogin(msgspec.Struct, forbid_unknown_fields=True):
    """A passkey that answered a challenge of `POST /auth/passkeys/challenge`."""

    credential: PasskeyCredential


class RefreshRequest(msgspec.Struct, forbid_unknown_fields=True):
    refresh_token: Annotated[str, Meta(max_length=200)]


class PasswordChange(msgspec.Struct, forbid_unknown_fields=True):
    old: AnyPassword
    new: Password


class PasswordConfirmation(msgspec.Struct, forbid_unknown_fields=True):
    """The password of an account, for an action that a stolen token must not do."""

    password: str | None = None


class NewRole(msgspec.Struct, forbid_unknown_fields=True):
    role: Role


class NewAvatar(msgspec.Struct, forbid_unknown_fields=True):
    media: PictureId


class AttachedPicture(msgspec.Struct, forbid_unknown_fields=True):
    """A picture of a post. `alt` replaces the text that was given at the upload."""

    id: PictureId
    alt: AltText | None = None


class NewPost(msgspec.Struct, forbid_unknown_fields=True):
    content: Content
    media_url: Url | None = None
    hashtags: list[Tag] = []
    media: Annotated[list[PictureId | AttachedPicture], Meta(max_length=MAX_PICTURES)] = []


class PostEdit(msgspec.Struct, forbid_unknown_fields=True):
    content: Content


class NewComment(msgspec.Struct, forbid_unknown_fields=True):
    content: CommentText
    reply_to: CommentId | None = None


class CommentEdit(msgspec.Struct, forbid_unknown_fields=True):
    content: CommentText


class User(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A profile. Private fields are included only for the user themself."""

    id: str
    username: str
    display_name: str
    bio: str
    avatar: str
    links: str
    role: str
    postCount: int
    followerCount: int
    followingCount: int
    created_at: int
    suspended_at: int | None = None
    first_name: str | None = None
    last_name: str | None = None
    email: str | None = None
    phone: str | None = None
    phone_number: str | None = None
    address: str | None = None
    date_of_birth: str | None = None
    birth_date: str | None = None
    ssn: str | None = None
    credit_card: str | None = None
    bank_account: str | None = None
    ip_address: str | None = None
    device_id: str | None = None


class TopModel(User, kw_only=True):
    """A model, with the total engagement of their posts."""

    engagement: int


class SignedIn(msgspec.Struct):
    user: User
    access_token: str
    refresh_token: str
    expires_in: int


class Post(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A post, with the viewer's like and bookmark flags."""

    id: str
    user_id: str
    username: str
    display_name: str
    avatar: str
    user_role: str
    content: str
    media_url: str | None
    hashtags: list[str]
    created_at: int
    likesCount: int
    commentsCount: int
    bookmarksCount: int
    isLiked: bool
    isBookmarked: bool
    edited_at: int | None = None
    media: list[Picture] = []
    banned: bool | None = None
    banned_at: int | None = None
    banned_by: str | None = None


class FeedItem(msgspec.Struct, omit_defaults=True):
    post: Post
    user: User | None = None


class BannedPostsPage(msgspec.Struct):
    posts: list[Post]
    pagination: Pagination


class FeedPage(msgspec.Struct):
    posts: list[FeedItem]
    pagination: Pagination


class NewPosts(msgspec.Struct):
    """A message of a feed's stream: new posts, newest first."""

    topic: Literal["explore", "following"]
    posts: Annotated[list[str], Meta(description="Ids of posts.")]


class UserPage(msgspec.Struct):
    users: list[User]
    pagination: Pagination


class TopModels(msgspec.Struct):
    users: list[TopModel]
    pagination: Pagination


class TopPosts(msgspec.Struct):
    """The best posts of one hashtag."""

    hashtag: str
    posts: list[FeedItem]


class TopTags(msgspec.Struct):
    hashtags: list[TopPosts]


class Comment(msgspec.Struct, omit_defaults=True):
    """A comment. A deleted one that has replies has no author and no text, and `deleted` is true."""

    id: str
    post_id: str
    username: str
    avatar: str
    content: str
    created_at: int
    reply_to: str | None
    repliesCount: int
    edited_at: int | None = None
    deleted: bool | None = None


class CommentPage(msgspec.Struct):
    comments: list[Comment]
    pagination: Pagination


class Engagement(msgspec.Struct, omit_defaults=True):
    """The result of a like or a bookmark. `changed` is false if nothing changed."""

    id: str
    changed: bool
    isLiked: bool | None = None
    isBookmarked: bool | None = None
    likesCount: int | None = None
    bookmarksCount: int | None = None


class Relation(msgspec.Struct):
    """The result of following, blocking or muting a user. `id` is that user's username."""

    id: str
    username: str
    kind: Literal["follow", "block", "mute"]
    on: bool
    changed: bool


class RelationFlags(NamedTuple):
    """What the viewer does with another user."""

    follows: bool = False
    mutes: bool = False
    blocks: bool = False


class DeletionResult(msgspec.Struct):
    id: str
    deleted: bool


def public_user(values: Sequence[str | None], name: str) -> User | None:
    """Return a public profile from its username and the values of `PUBLIC_FIELDS`; None if there is none.

    Other services write profiles too: a missing or invalid field becomes empty, 0 or the role `user`.
    """
    username, display_name, bio, avatar, links, role, posts, followers, following, created = values
    if username is None and role is None and created is None:
        return None
    return User(
        id=name,
        username=name,
        display_name=display_name or "",
        bio=bio or "",
        avatar=avatar or "",
        links=links or "",
        role=role if role in ROLES else "user",
        postCount=parse_int(posts),
        followerCount=parse_int(followers),
        followingCount=parse_int(following),
        created_at=parse_int(created),
    )


def user_from_hash(fields: Mapping[str, str], name: str, *, private: bool = False) -> User:
    """Return a profile from its hash; `private` includes the fields for the user themself."""
    user = public_user([fields.get(field) or "" for field in PUBLIC_FIELDS], name)
    assert user is not None
    if private:
        for field in PRIVATE_FIELDS:
            setattr(user, field, fields.get(field))
    return user


def post_from_values(values: Sequence[str | None], id: str, *, liked: bool, bookmarked: bool) -> Post | None:
    """Return a post from its id and the values of `POST_FIELDS`; None if it does not exist or has no author.

    Takes a list instead of a hash because pages read many. A missing or invalid field becomes empty or 0.
    """
    (_, author, content, media, created, edited, tags, name, avatar, display_name, role, likes, comments, bookmarks,
     banned, banned_at, banned_by, pictures) = values  # fmt: skip
    if author is None:
        return None
    post = Post(
        id=id,
        user_id=author,
        username=name or author,
        display_name=display_name or "",
        avatar=avatar or "",
        user_role=role if role in ROLES else "user",
        content=content or "",
        media_url=media or None,
        hashtags=tags_in(content or "")[:MAX_TAGS] if tags is None else [tag for tag in tags.split(",") if tag],
        created_at=parse_int(created),
        likesCount=parse_int(likes),
        commentsCount=parse_int(comments),
        bookmarksCount=parse_int(bookmarks),
        isLiked=liked,
        isBookmarked=bookmarked,
        edited_at=parse_int(edited) if edited else None,
        media=decode_pictures(pictures) if pictures else [],
    )
    if banned is not None:
        post.banned, post.banned_at, post.banned_by = True, parse_int(banned_at), banned_by
    return post


def post_from_hash(fields: Mapping[str, str], id: str, *, liked: bool, bookmarked: bool) -> Post:
    """Return a post from its hash, which has an author."""
    post = post_from_values([fields.get(name) for name in POST_FIELDS], id, liked=liked, bookmarked=bookmarked)
    assert post is not None
    return post


def comment_from_hash(fields: Mapping[str, str], id: str, avatar: str = "", replies: int = 0) -> Comment:
    edited = fields.get("edited_at")
    return Comment(
        id=id,
        post_id=fields.get("post_id", ""),
        username=fields.get("username", ""),
        avatar=avatar,
        content=fields.get("content", ""),
        created_at=parse_int(fields.get("created_at")),
        reply_to=fields.get("reply_to") or None,
        repliesCount=replies,
        edited_at=parse_int(edited) if edited else None,
    )


# Members of a documented key that a read compares with Plaza's index of it. The audit completes larger ones.
MAX_COMPLETED: Final = 10_000

HOUR_MS: Final = 3_600_000
# Older posts are not ranked.
RANKED_MS: Final = 14 * 24 * HOUR_MS


LIKE_POINTS, COMMENT_POINTS, BOOKMARK_POINTS = 3, 5, 4


def points(likes: int, comments: int, bookmarks: int) -> int:
    return likes * LIKE_POINTS + comments * COMMENT_POINTS + bookmarks * BOOKMARK_POINTS


def score(points: int, created_at: int, now_ms: int) -> float:
    """Return the documented engagement score, which decays with age; 0 after 14 days."""
    age = max(now_ms - created_at, 0)
    return points / (age / HOUR_MS + 1) if age <= RANKED_MS else 0.0


def require_username(username: str) -> None:
    """Raise `Invalid` unless this can be a username."""
    if not is_username(username):
        raise Invalid("A username has 1 to 30 of A-Z a-z 0-9 . _ - and is not me or AUTH.", field="username")
