"""Every key of `social`. Those with `document` are the document's, to the letter; the others are what makes them
cheap to keep true: the other side of a relation, an order for paging, a queue of work.
"""

from __future__ import annotations

from plaza.core.keys import Access, Catalogue, Counts, Field, Formula, Hidden, Key, Mirrors, Refers
from plaza.core.tokens import USERNAME

SELF, PUBLIC, ADMIN, NOBODY = Access.SELF, Access.PUBLIC, Access.ADMIN, Access.NOBODY

MS = "Unix milliseconds"

_PRIVATE = {
    "first_name": "first name",
    "last_name": "last name",
    "email": "e-mail address",
    "phone": "telephone number",
    "phone_number": "telephone number, as some clients call it",
    "address": "postal address",
    "date_of_birth": "date of birth",
    "birth_date": "date of birth, as some clients call it",
    "ssn": "social security number",
    "credit_card": "credit card",
    "bank_account": "bank account",
    "ip_address": "IP address",
    "device_id": "device",
}
# As long as the routes let them be.
_LONG = {"address"}
_LONG_CHARACTERS, _LINE_CHARACTERS = 2_000, 200

# What is on a banned post is shown to admins only, as the routes have it.
_BANNED = Hidden("post:<post>", "banned")

USER = Key(
    "user:<username>",
    "hash",
    "A profile.",
    owner="username",
    fields=(
        Field("username", "the name, which is the id"),
        Field("display_name", "name to show"),
        Field("bio", "about this person", write=SELF, most=_LONG_CHARACTERS),
        Field("avatar", "URL of a picture"),
        Field("links", "links elsewhere", write=SELF, most=_LONG_CHARACTERS),
        Field("role", "`user`, `model` or `admin`"),
        Field("postCount", "number of posts"),
        Field("followerCount", "number of followers"),
        Field("followingCount", "number of people followed"),
        Field("created_at", f"when the account was made, {MS}"),
        *(
            Field(name, says, SELF, SELF, _LONG_CHARACTERS if name in _LONG else _LINE_CHARACTERS)
            for name, says in _PRIVATE.items()
        ),
        Field("password", "never here; what another client may have left is shown to nobody", read=NOBODY),
        Field("password_hash", "never here either: `auth:<username>` has it", read=NOBODY),
        Field("suspended_at", f"when an admin suspended the account, {MS}; absent if not", read=SELF),
        Field("suspended_by", "who suspended it", read=SELF),
        Field("version", "counts changes of what posts copy from the profile", read=SELF),
    ),
    read=PUBLIC,
    write=SELF,
    document="user:<username>",
)
USER_POSTS = Key(
    "user:<username>:posts",
    "zset",
    "Everything someone has posted, banned posts too.",
    of="post id",
    score=f"creation, {MS}",
    owner="username",
    same=(Counts("user:<username>", "postCount"), Refers("post:<post>")),
    read=PUBLIC,
    document="user:<username>:posts",
)
USER_FOLLOWERS = Key(
    "user:<username>:followers",
    "set",
    "Who follows this person.",
    of="username",
    owner="username",
    same=(Counts("user:<username>", "followerCount"), Mirrors("user:<username>:following"), Refers("user:<username>")),
    read=PUBLIC,
    document="user:<username>:followers",
)
USER_FOLLOWING = Key(
    "user:<username>:following",
    "set",
    "Whom this person follows. This is the fact of a follow.",
    of="username",
    owner="username",
    same=(Counts("user:<username>", "followingCount"), Mirrors("user:<username>:followers"), Refers("user:<username>")),
    read=PUBLIC,
    document="user:<username>:following",
)
USER_BOOKMARKED = Key(
    "user:<username>:bookmarked",
    "zset",
    "What someone has bookmarked. This is the fact of a bookmark.",
    of="post id",
    score=f"when it was bookmarked, {MS}",
    owner="username",
    same=(Mirrors("post:<post>:bookmarks"), Refers("post:<post>")),
    read=SELF,
    document="user:<username>:bookmarked",
)
USER_FOLLOWERS_RECENT = Key(
    "user:<username>:followers:recent",
    "zset",
    "The followers in the order they came, for paging.",
    of="username",
    score=f"when they followed, {MS}",
    owner="username",
    same=(Formula("the members of `user:<username>:followers`"),),
    read=PUBLIC,
)
USER_FOLLOWING_RECENT = Key(
    "user:<username>:following:recent",
    "zset",
    "The people followed in the order of following, for paging and for building a home feed.",
    of="username",
    score=f"when the follow began, {MS}",
    owner="username",
    same=(Formula("the members of `user:<username>:following`"),),
    read=PUBLIC,
)
USER_LIKED = Key(
    "user:<username>:liked",
    "zset",
    "What someone likes: the other side of `post:<post>:likes`, for showing and for leaving.",
    of="post id",
    score=f"when it was liked, {MS}",
    owner="username",
    same=(Mirrors("post:<post>:likes"), Refers("post:<post>")),
    read=SELF,
)
USER_COMMENTS = Key(
    "user:<username>:comments",
    "zset",
    "Someone's comments, for leaving and for the export.",
    of="comment id",
    score=f"creation, {MS}",
    owner="username",
    same=(Refers("comment:<comment>"),),
    read=SELF,
)
USER_BLOCKED = Key(
    "user:<username>:blocked",
    "zset",
    "Whom this person blocks.",
    of="username",
    score=f"since when, {MS}",
    owner="username",
    same=(Mirrors("user:<username>:blocked_by"),),
    read=SELF,
)
USER_BLOCKED_BY = Key(
    "user:<username>:blocked_by",
    "zset",
    "Who blocks this person. Blocking hides both ways, so both sides know it.",
    of="username",
    score=f"since when, {MS}",
    owner="username",
    same=(Mirrors("user:<username>:blocked"),),
    read=ADMIN,
)
USER_MUTED = Key(
    "user:<username>:muted",
    "zset",
    "Whose posts this person does not want in feeds.",
    of="username",
    score=f"since when, {MS}",
    owner="username",
    same=(Mirrors("user:<username>:muted_by"),),
    read=SELF,
)
USER_MUTED_BY = Key(
    "user:<username>:muted_by",
    "zset",
    "Who mutes this person, so that nothing is left behind when the account goes.",
    of="username",
    score=f"since when, {MS}",
    owner="username",
    same=(Mirrors("user:<username>:muted"),),
    read=ADMIN,
)
USER_POINTS = Key(
    "user:<username>:points",
    "hash",
    "Engagement points of each post of this person that is not banned and has any, and their sum.",
    of="post id → points; `total` → their sum",
    owner="username",
    same=(Formula("`likes*3 + comments*5 + bookmarks*4` of each post"),),
    read=ADMIN,
)
USER_LEAVING = Key(
    "user:<username>:leaving",
    "string",
    "This account is being deleted: the name is not free until nothing of it is left.",
    of=f"since when, {MS}",
    owner="username",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USERS_LEAVING = Key(
    "users:leaving",
    "zset",
    "Accounts whose deletion is under way, so that a worker can go on with it.",
    of="username",
    score=f"since when, {MS}",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USER_RENAMING = Key(
    "user:<username>:renaming",
    "hash",
    "This account is being renamed. Neither its old nor its new name is to be had until all is moved.",
    owner="username",
    fields=(
        Field("to", "beside the old name: the new one", read=ADMIN),
        Field("since", f"beside the old name: when it began, {MS}", read=ADMIN),
        Field(
            "phase", "beside the old name: `begun`, `moving`, or `closing` once the new one is its owner's", read=ADMIN
        ),
        Field("from", "beside the new name: the old one", read=ADMIN),
    ),
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RENAMING = Key(
    "users:renaming",
    "hash",
    "Accounts that are being renamed, so that a worker can go on with it.",
    of="old name → new name",
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RESTYLE = Key(
    "users:restyle",
    "hash",
    "Whose posts still show an older avatar, display name or role.",
    of="username → `version|position`: the profile's version, and how far its posts are done",
    lifetime="until all posts are done",
    read=ADMIN,
)
IMPORTS = Key(
    "imports",
    "hash",
    "Files that `plaza import` has not finished, so that the next run goes on where the last one stopped.",
    of="fingerprint of the file → JSON `[bytes done, lines done, counts]`",
    lifetime="until the file is done",
    read=ADMIN,
)
AUTH_USER = Key(
    "auth:<username>",
    "hash",
    "What proves who someone is. No route or proxy reads it out.",
    of="`password_hash` → argon2 or bcrypt; family of refresh tokens → `sha256 of the current one|expiry in ms`",
    owner="username",
)

POST = Key(
    "post:<post>",
    "hash",
    "A post, with what feeds show of its author.",
    owner="post",
    fields=(
        Field("id", "UUID"),
        Field("user_id", "username of the author"),
        Field("content", "the text"),
        Field("media_url", "URL of an image or video"),
        Field("created_at", f"creation, {MS}"),
        Field("edited_at", f"last edit, {MS}; absent if never"),
        Field("hashtags", "its tags, lower case, joined by commas"),
        Field("username", "the author's username"),
        Field("avatar", "the author's avatar"),
        Field("display_name", "the author's display name"),
        Field("user_role", "the author's role"),
        Field("user_version", "which version of the profile these were copied from", read=ADMIN),
        Field("likesCount", "number of likes"),
        Field("commentsCount", "number of comments"),
        Field("bookmarksCount", "number of bookmarks"),
        Field("banned", "`true`, or absent"),
        Field("banned_at", f"when, {MS}", read=ADMIN),
        Field("banned_by", "by whom", read=ADMIN),
    ),
    same=(Refers("user:<username>"),),
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>",
)
POST_LIKES = Key(
    "post:<post>:likes",
    "set",
    "Who likes a post. This is the fact of a like.",
    of="username",
    owner="post",
    same=(Counts("post:<post>", "likesCount"), Mirrors("user:<username>:liked")),
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>:likes",
)
POST_LIKES_RECENT = Key(
    "post:<post>:likes:recent",
    "zset",
    "The likes in the order they came, for paging.",
    of="username",
    score=f"when, {MS}",
    owner="post",
    same=(Formula("the members of `post:<post>:likes`"),),
    read=PUBLIC,
    hidden=_BANNED,
)
POST_BOOKMARKS = Key(
    "post:<post>:bookmarks",
    "set",
    "Who has bookmarked a post.",
    of="username",
    owner="post",
    same=(Counts("post:<post>", "bookmarksCount"), Mirrors("user:<username>:bookmarked")),
    read=ADMIN,
    document="post:<id>:bookmarks",
)
POST_COMMENTS = Key(
    "post:<post>:comments",
    "list",
    "The comments of a post, oldest first.",
    of="comment id",
    owner="post",
    same=(Counts("post:<post>", "commentsCount"), Refers("comment:<comment>")),
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>:comments",
)
POST_COMMENTS_RECENT = Key(
    "post:<post>:comments:recent",
    "zset",
    "The comments by time, for paging.",
    of="comment id",
    score=f"creation, {MS}",
    owner="post",
    same=(Formula("the members of `post:<post>:comments`"),),
    read=PUBLIC,
    hidden=_BANNED,
)
POST_EDITS = Key(
    "post:<post>:edits",
    "list",
    "What a post said before each edit, oldest first.",
    of="JSON `{content, hashtags, until}`, `until` in Unix milliseconds",
    owner="post",
    read=ADMIN,
)
POSTS_LEAVING = Key(
    "posts:leaving",
    "zset",
    "Deleted posts that many had liked, bookmarked or commented on, whose other sides are still being cleared.",
    of="post id",
    score=f"since when, {MS}",
    lifetime="until the deletion is done",
    read=ADMIN,
)
COMMENT = Key(
    "comment:<comment>",
    "hash",
    "A comment.",
    owner="comment",
    fields=(
        Field("id", "UUID"),
        Field("post_id", "the post it is on"),
        Field("username", "who wrote it"),
        Field("content", "the text"),
        Field("created_at", f"creation, {MS}"),
    ),
    same=(Refers("post:<post>"),),
    read=PUBLIC,
)

EXPLORE_FEED = Key(
    "explore:feed",
    "zset",
    "All posts that are not banned.",
    of="post id",
    score=f"creation, {MS}",
    same=(Refers("post:<post>"),),
    read=PUBLIC,
    document="explore:feed",
)
HASHTAG_POSTS = Key(
    "hashtag:<tag>:posts",
    "zset",
    "The posts with a tag that are not banned.",
    of="post id",
    score=f"creation, {MS}",
    owner="tag",
    same=(Refers("post:<post>"),),
    read=PUBLIC,
    document="hashtag:<tag>:posts",
)
HASHTAG_RANKED = Key(
    "hashtag:<tag>:ranked",
    "zset",
    "The posts with a tag that are not banned and not older than 14 days, by engagement.",
    of="post id",
    score="`(likes*3 + comments*5 + bookmarks*4) / (hours since creation + 1)`, within 2%",
    owner="tag",
    same=(Refers("post:<post>"),),
    read=PUBLIC,
    document="hashtag:<tag>:ranked",
)
RANKING_DUE = Key(
    "ranking:due",
    "zset",
    "When each post with tags must be scored again, so that its stored scores stay within 2% as time passes.",
    of="post id",
    score=f"when, {MS}",
    lifetime="a post leaves after 14 days",
    read=ADMIN,
)
RANKING_POSTS = Key(
    "ranking:posts",
    "hash",
    "What scoring a post again takes, in little: posts themselves need not be read.",
    of="post id → `created_at|points|tags`",
    lifetime="a post leaves after 14 days",
    read=ADMIN,
)
FEEDS_PUSH = Key(
    "feeds:push",
    "zset",
    "Posts that are still to be put into the home feeds that exist, in the background.",
    of="post id",
    score=f"creation, {MS}",
    lifetime="until they are",
    read=ADMIN,
)
FEEDS_DROP = Key(
    "feeds:drop",
    "zset",
    "Deleted posts that are still to be taken out of the home feeds that exist, in the background.",
    of="`<author>|<post id>`",
    score=f"when it was deleted, {MS}; 0 if that is not known",
    lifetime="until they are",
    read=ADMIN,
)
USERS_REGULAR = Key(
    "users:regular",
    "zset",
    "Everyone with the role `user`.",
    of="username",
    score=f"when the account was made, {MS}",
    same=(Refers("user:<username>"),),
    read=PUBLIC,
    document="users:regular",
)
USERS_MODELS = Key(
    "users:models",
    "zset",
    "Everyone with the role `model`.",
    of="username",
    score=f"when the account was made, {MS}",
    same=(Refers("user:<username>"),),
    read=PUBLIC,
    document="users:models",
)
MODELS_TOP_ENGAGEMENT = Key(
    "models:top:engagement",
    "zset",
    "The models by the engagement of all their posts that are not banned.",
    of="username",
    score="`likes*3 + comments*5 + bookmarks*4`, summed",
    same=(Refers("user:<username>"), Formula("the `total` of `user:<username>:points`")),
    read=PUBLIC,
    document="models:top:engagement",
)

# Fifteen minutes after the last read.
HOME_SECONDS = 900
TMP_HOME = Key(
    "tmp:home:<username>",
    "zset",
    "The newest posts of everyone this person follows.",
    of="post id",
    score=f"creation, {MS}",
    owner="username",
    lifetime="15 minutes after the last read",
    ttl_seconds=HOME_SECONDS,
    read=SELF,
    document="tmp:home:<username>",
)
TMP_HOME_STATE = Key(
    "tmp:home:<username>:state",
    "hash",
    "How much the home feed beside it holds.",
    of=(
        "`upto` → posts made until then are in it; `floor` → posts made after that are in it ('' if all are); "
        "`follows` → whom it was built from"
    ),
    owner="username",
    lifetime="15 minutes after the last read",
    ttl_seconds=HOME_SECONDS,
    read=ADMIN,
)

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

CATALOGUE = Catalogue.of(
    "social",
    globals(),
    {"username": USERNAME, "post": UUID, "comment": UUID, "tag": r"[^\s{}:,#]{1,100}"},
)
