"""Every key of `social`. Those with `document` are the document's, to the letter; the others are what makes them
cheap to keep true: the other side of a relation, an order for paging, a queue of work.
"""

from __future__ import annotations

from plaza.core.keyspace import (
    Catalogue,
    CountField,
    Formula,
    HashField,
    HiddenWhile,
    Key,
    KeyAccess,
    MirrorOf,
    Reference,
    RequiresKey,
    SameMembers,
    ScoreField,
)
from plaza.core.tokens import USERNAME

SELF, PUBLIC, ADMIN, NOBODY = KeyAccess.SELF, KeyAccess.PUBLIC, KeyAccess.ADMIN, KeyAccess.NONE

MS = "Unix milliseconds"

PRIVATE = {
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
_BESIDE_POST = RequiresKey("post:<post>", repair="post <post>")
_BANNED = HiddenWhile("post:<post>", "banned")

USER = Key(
    "user:<username>",
    "hash",
    "A profile.",
    owner="username",
    fields=(
        HashField("username", "the name, which is the id", value_regex="<username>", required=True),
        HashField("display_name", "name to show"),
        HashField("bio", "about this person", write=SELF, max_length=_LONG_CHARACTERS),
        HashField("avatar", "URL of a picture"),
        HashField("links", "links elsewhere", write=SELF, max_length=_LONG_CHARACTERS),
        HashField("role", "`user`, `model` or `admin`", value_regex="user|model|admin", required=True),
        HashField("postCount", "number of posts", value_regex="<count>", required=True),
        HashField("followerCount", "number of followers", value_regex="<count>", required=True),
        HashField("followingCount", "number of people followed", value_regex="<count>", required=True),
        HashField("created_at", f"when the account was made, {MS}", value_regex="<ms>", required=True),
        *(
            HashField(name, says, SELF, SELF, _LONG_CHARACTERS if name in _LONG else _LINE_CHARACTERS)
            for name, says in PRIVATE.items()
        ),
        HashField("password", "never here; what another client may have left is shown to nobody", read=NOBODY),
        HashField("password_hash", "never here either: `auth:<username>` has it", read=NOBODY),
        HashField(
            "suspended_at", f"when an admin suspended the account, {MS}; absent if not", read=SELF, value_regex="<ms>"
        ),
        HashField("suspended_by", "who suspended it", read=SELF),
        HashField("version", "counts changes of what posts copy from the profile", read=SELF, value_regex="<count>"),
    ),
    invariants=(Formula("no field is a password"),),
    repair="user <username>",
    read=PUBLIC,
    write=SELF,
    document="user:<username>",
)
USER_POSTS = Key(
    "user:<username>:posts",
    "zset",
    "Everything someone has posted, banned posts too.",
    contains="post id",
    score=f"creation, {MS}",
    owner="username",
    element_regex="<post>",
    invariants=(
        CountField("user:<username>", "postCount"),
        Formula("each is this person's post, at its `created_at`"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="authored <post> <username>",
    read=PUBLIC,
    document="user:<username>:posts",
)
USER_FOLLOWERS = Key(
    "user:<username>:followers",
    "set",
    "Who follows this person.",
    contains="username",
    owner="username",
    element_regex="<username>",
    invariants=(
        CountField("user:<username>", "followerCount"),
        MirrorOf("user:<username>:following"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="follow <other> <username>",
    read=PUBLIC,
    document="user:<username>:followers",
)
USER_FOLLOWING = Key(
    "user:<username>:following",
    "set",
    "Whom this person follows. This is the fact of a follow.",
    contains="username",
    owner="username",
    element_regex="<username>",
    invariants=(
        CountField("user:<username>", "followingCount"),
        MirrorOf("user:<username>:followers"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="follow <username> <other>",
    read=PUBLIC,
    document="user:<username>:following",
)
USER_BOOKMARKED = Key(
    "user:<username>:bookmarked",
    "zset",
    "What someone has bookmarked. This is the fact of a bookmark.",
    contains="post id",
    score=f"when it was bookmarked, {MS}",
    owner="username",
    element_regex="<post>",
    invariants=(MirrorOf("post:<post>:bookmarks"),),
    repair="bookmark <username> <post>",
    read=SELF,
    document="user:<username>:bookmarked",
)
USER_FOLLOWERS_RECENT = Key(
    "user:<username>:followers:recent",
    "zset",
    "The followers in the order they came, for paging.",
    contains="username",
    score=f"when they followed, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(
        SameMembers("user:<username>:followers"),
        MirrorOf("user:<username>:following:recent", same_score=True),
    ),
    repair="follow <other> <username>",
    read=PUBLIC,
)
USER_FOLLOWING_RECENT = Key(
    "user:<username>:following:recent",
    "zset",
    "The people followed in the order of following, for paging and for building a home feed.",
    contains="username",
    score=f"when the follow began, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(SameMembers("user:<username>:following"),),
    repair="follow <username> <other>",
    read=PUBLIC,
)
USER_LIKED = Key(
    "user:<username>:liked",
    "zset",
    "What someone likes: the other side of `post:<post>:likes`, for showing and for leaving.",
    contains="post id",
    score=f"when it was liked, {MS}",
    owner="username",
    element_regex="<post>",
    invariants=(MirrorOf("post:<post>:likes:recent", same_score=True),),
    repair="like <post> <username>",
    read=SELF,
)
USER_COMMENTS = Key(
    "user:<username>:comments",
    "zset",
    "Someone's comments, for leaving and for the export.",
    contains="comment id",
    score=f"creation, {MS}",
    owner="username",
    element_regex="<comment>",
    invariants=(ScoreField("comment:<comment>", "created_at"),),
    repair="commented <comment> <username>",
    read=SELF,
)
USER_BLOCKED = Key(
    "user:<username>:blocked",
    "zset",
    "Whom this person blocks.",
    contains="username",
    score=f"since when, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:blocked_by", same_score=True),),
    repair="block <username> <other>",
    read=SELF,
)
USER_BLOCKED_BY = Key(
    "user:<username>:blocked_by",
    "zset",
    "Who blocks this person. Blocking hides both ways, so both sides know it.",
    contains="username",
    score=f"since when, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:blocked", same_score=True),),
    repair="block <other> <username>",
    read=ADMIN,
)
USER_MUTED = Key(
    "user:<username>:muted",
    "zset",
    "Whose posts this person does not want in feeds.",
    contains="username",
    score=f"since when, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:muted_by", same_score=True),),
    repair="mute <username> <other>",
    read=SELF,
)
USER_MUTED_BY = Key(
    "user:<username>:muted_by",
    "zset",
    "Who mutes this person, so that nothing is left behind when the account goes.",
    contains="username",
    score=f"since when, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:muted", same_score=True),),
    repair="mute <other> <username>",
    read=ADMIN,
)
USER_POINTS = Key(
    "user:<username>:points",
    "hash",
    "Engagement points of each post of this person that is not banned and has any, and their sum.",
    contains="post id → points; `total` → their sum",
    owner="username",
    element_regex="<post>|total",
    value_regex="<count>",
    invariants=(
        Formula("`likes*3 + comments*5 + bookmarks*4` of each post"),
        Formula("`total` is the sum of the others"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="points <username>",
    read=SELF,
)
USER_LEAVING = Key(
    "user:<username>:leaving",
    "string",
    "This account is being deleted: the name is not free until nothing of it is left.",
    contains=f"since when, {MS}",
    owner="username",
    element_regex="<ms>",
    invariants=(Formula("the user is in `users:leaving`"),),
    repair="leaving <username>",
    marks_deletion_of="username",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USERS_LEAVING = Key(
    "users:leaving",
    "zset",
    "Accounts whose deletion is under way, so that a worker can go on with it.",
    contains="username",
    score=f"since when, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has its `user:<username>:leaving`"),),
    repair="leaving <username>",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USER_RENAMING = Key(
    "user:<username>:renaming",
    "hash",
    "This account is being renamed. Neither its old nor its new name is to be had until all is moved.",
    owner="username",
    fields=(
        HashField("to", "beside the old name: the new one", read=ADMIN),
        HashField("since", f"beside the old name: when it began, {MS}", read=ADMIN),
        HashField(
            "phase", "beside the old name: `begun`, `moving`, or `closing` once the new one is its owner's", read=ADMIN
        ),
        HashField("from", "beside the new name: the old one", read=ADMIN),
    ),
    marks_deletion_of="username",
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RENAMING = Key(
    "users:renaming",
    "hash",
    "Accounts that are being renamed, so that a worker can go on with it.",
    contains="old name → new name",
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RESTYLE = Key(
    "users:restyle",
    "hash",
    "Whose posts still show an older avatar, display name or role.",
    contains="username → `version|position`: the profile's version, and how far its posts are done",
    element_regex="<username>",
    value_regex=r"<count>\|.*",
    lifetime="until all posts are done",
    read=ADMIN,
)
IMPORTS = Key(
    "imports",
    "hash",
    "Files that `plaza import` has not finished, so that the next run goes on where the last one stopped.",
    contains="fingerprint of the file → JSON `[bytes done, lines done, counts]`",
    value_regex=r"\[.*\]",
    lifetime="until the file is done",
    read=ADMIN,
)
AUTH_USER = Key(
    "auth:<username>",
    "hash",
    "What proves who someone is. No route or proxy reads it out.",
    contains="`password_hash` → argon2 or bcrypt; family of refresh tokens → `sha256 of the current one|expiry in ms`; "
    "`registered` → hashes of the `Idempotency-Key` and of the profile it was registered with, and when",
    owner="username",
    element_regex="password_hash|synced_hash|registered|family:.+",
    invariants=(RequiresKey("user:<username>"),),
    repair="auth <username>",
)

POST = Key(
    "post:<post>",
    "hash",
    "A post, with what feeds show of its author.",
    owner="post",
    fields=(
        HashField("id", "UUID", value_regex="<post>", required=True),
        HashField("user_id", "username of the author", value_regex="<username>", required=True),
        HashField("content", "the text", required=True),
        HashField("media_url", "URL of an image or video"),
        HashField("created_at", f"creation, {MS}", value_regex="<ms>", required=True),
        HashField("edited_at", f"last edit, {MS}; absent if never", value_regex="<ms>"),
        HashField("hashtags", "its tags, lower case, joined by commas", value_regex=r"[^\s{}:#]*"),
        HashField("username", "the author's username", value_regex="<username>", required=True),
        HashField("avatar", "the author's avatar"),
        HashField("display_name", "the author's display name"),
        HashField("user_role", "the author's role", value_regex="user|model|admin", required=True),
        HashField(
            "user_version", "which version of the profile these were copied from", read=ADMIN, value_regex="<count>"
        ),
        HashField("likesCount", "number of likes", value_regex="<count>", required=True),
        HashField("commentsCount", "number of comments", value_regex="<count>", required=True),
        HashField("bookmarksCount", "number of bookmarks", value_regex="<count>", required=True),
        HashField("banned", "`true`, or absent", value_regex="true"),
        HashField("banned_at", f"when, {MS}", read=ADMIN, value_regex="<ms>"),
        HashField("banned_by", "by whom", read=ADMIN),
    ),
    invariants=(
        Reference("user:<username>", "user_id"),
        Formula("it stands in every feed and sum where it belongs"),
        Formula("what it shows of its author is the author's, or `users:restyle` knows"),
    ),
    repair="post <post>",
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>",
)
POST_LIKES = Key(
    "post:<post>:likes",
    "set",
    "Who likes a post. This is the fact of a like.",
    contains="username",
    owner="post",
    element_regex="<username>",
    invariants=(CountField("post:<post>", "likesCount"), MirrorOf("user:<username>:liked"), _BESIDE_POST),
    repair="like <post> <username>",
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>:likes",
)
POST_LIKES_RECENT = Key(
    "post:<post>:likes:recent",
    "zset",
    "The likes in the order they came, for paging.",
    contains="username",
    score=f"when, {MS}",
    owner="post",
    element_regex="<username>",
    invariants=(SameMembers("post:<post>:likes"), _BESIDE_POST),
    repair="like <post> <username>",
    read=PUBLIC,
    hidden=_BANNED,
)
POST_BOOKMARKS = Key(
    "post:<post>:bookmarks",
    "set",
    "Who has bookmarked a post.",
    contains="username",
    owner="post",
    element_regex="<username>",
    invariants=(CountField("post:<post>", "bookmarksCount"), MirrorOf("user:<username>:bookmarked"), _BESIDE_POST),
    repair="bookmark <username> <post>",
    read=ADMIN,
    document="post:<id>:bookmarks",
)
POST_COMMENTS = Key(
    "post:<post>:comments",
    "list",
    "The comments of a post, oldest first.",
    contains="comment id",
    owner="post",
    element_regex="<comment>",
    invariants=(CountField("post:<post>", "commentsCount"), Reference("comment:<comment>"), _BESIDE_POST),
    repair="comment <post> <comment>",
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>:comments",
)
POST_COMMENTS_RECENT = Key(
    "post:<post>:comments:recent",
    "zset",
    "The comments by time, for paging.",
    contains="comment id",
    score=f"creation, {MS}",
    owner="post",
    element_regex="<comment>",
    invariants=(SameMembers("post:<post>:comments"), ScoreField("comment:<comment>", "created_at"), _BESIDE_POST),
    repair="post <post>",
    read=PUBLIC,
    hidden=_BANNED,
)
POST_EDITS = Key(
    "post:<post>:edits",
    "list",
    "What a post said before each edit, oldest first.",
    contains="JSON `{content, hashtags, until}`, `until` in Unix milliseconds",
    owner="post",
    element_regex=r"\{.*\}",
    invariants=(_BESIDE_POST,),
    repair="post <post>",
    read=ADMIN,
)
POSTS_LEAVING = Key(
    "posts:leaving",
    "zset",
    "Deleted posts that many had liked, bookmarked or commented on, whose other sides are still being cleared.",
    contains="post id",
    score=f"since when, {MS}",
    element_regex="<post>",
    marks_deletion_of="post",
    lifetime="until the deletion is done",
    read=ADMIN,
)
COMMENT = Key(
    "comment:<comment>",
    "hash",
    "A comment.",
    owner="comment",
    fields=(
        HashField("id", "UUID", value_regex="<comment>", required=True),
        HashField("post_id", "the post it is on", value_regex="<post>", required=True),
        HashField("username", "who wrote it", value_regex="<username>", required=True),
        HashField("content", "the text", required=True),
        HashField("created_at", f"creation, {MS}", value_regex="<ms>", required=True),
    ),
    invariants=(Reference("post:<post>", "post_id"), Formula("its post and its author have it among their comments")),
    repair="commented <comment> <username>",
    read=PUBLIC,
    hidden=HiddenWhile("post:<post>", "banned", via="post_id"),
)

EXPLORE_FEED = Key(
    "explore:feed",
    "zset",
    "All posts that are not banned.",
    contains="post id",
    score=f"creation, {MS}",
    element_regex="<post>",
    invariants=(Formula("each is a post that is not banned, at its `created_at`"),),
    repair="post <post>",
    read=PUBLIC,
    document="explore:feed",
)
HASHTAG_POSTS = Key(
    "hashtag:<tag>:posts",
    "zset",
    "The posts with a tag that are not banned.",
    contains="post id",
    score=f"creation, {MS}",
    owner="tag",
    element_regex="<post>",
    invariants=(Formula("each is a post with the tag that is not banned, at its `created_at`"),),
    repair="tagged <post> <tag>",
    read=PUBLIC,
    document="hashtag:<tag>:posts",
)
HASHTAG_RANKED = Key(
    "hashtag:<tag>:ranked",
    "zset",
    "The posts with a tag that are not banned and not older than 14 days, by engagement.",
    contains="post id",
    score="`(likes*3 + comments*5 + bookmarks*4) / (hours since creation + 1)`, within 2%",
    owner="tag",
    element_regex="<post>",
    invariants=(Formula("each is a post with the tag that is not banned"),),
    repair="tagged <post> <tag>",
    read=PUBLIC,
    document="hashtag:<tag>:ranked",
)
RANKING_DUE = Key(
    "ranking:due",
    "zset",
    "When each post with tags must be scored again, so that its stored scores stay within 2% as time passes.",
    contains="post id",
    score=f"when, {MS}",
    element_regex="<post>",
    invariants=(Reference("post:<post>"), Formula("exactly the posts of `ranking:posts`")),
    repair="post <post>",
    lifetime="a post leaves after 14 days",
    read=ADMIN,
)
RANKING_POSTS = Key(
    "ranking:posts",
    "hash",
    "What scoring a post again takes, in little: posts themselves need not be read.",
    contains="post id → `created_at|points|tags`",
    element_regex="<post>",
    value_regex=r"<ms>\|<count>\|.+",
    invariants=(Formula("what the post itself says"),),
    repair="post <post>",
    lifetime="a post leaves after 14 days",
    read=ADMIN,
)
FEEDS_PUSH = Key(
    "feeds:push",
    "zset",
    "Posts that are still to be put into the home feeds that exist, in the background.",
    contains="post id",
    element_regex="<post>",
    score=f"creation, {MS}",
    lifetime="until they are",
    read=ADMIN,
)
FEEDS_DROP = Key(
    "feeds:drop",
    "zset",
    "Deleted posts that are still to be taken out of the home feeds that exist, in the background.",
    contains="`<author>|<post id>`",
    element_regex=r"<username>\|<post>",
    score=f"when it was deleted, {MS}; 0 if that is not known",
    lifetime="until they are",
    read=ADMIN,
)
USERS_REGULAR = Key(
    "users:regular",
    "zset",
    "Everyone with the role `user`.",
    contains="username",
    score=f"when the account was made, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has that role, and was made then"),),
    repair="user <username>",
    read=PUBLIC,
    document="users:regular",
)
USERS_MODELS = Key(
    "users:models",
    "zset",
    "Everyone with the role `model`.",
    contains="username",
    score=f"when the account was made, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has that role, and was made then"),),
    repair="user <username>",
    read=PUBLIC,
    document="users:models",
)
MODELS_TOP_ENGAGEMENT = Key(
    "models:top:engagement",
    "zset",
    "The models by the engagement of all their posts that are not banned.",
    contains="username",
    score="`likes*3 + comments*5 + bookmarks*4`, summed",
    element_regex="<username>",
    invariants=(Formula("the `total` of `user:<username>:points`, of everyone who is a model"),),
    repair="user <username>",
    read=PUBLIC,
    document="models:top:engagement",
)

# Fifteen minutes after the last read.
HOME_SECONDS = 900
TMP_HOME = Key(
    "tmp:home:<username>",
    "zset",
    "The newest posts of everyone this person follows.",
    contains="post id",
    score=f"creation, {MS}",
    owner="username",
    element_regex="<post>",
    lifetime="15 minutes after the last read",
    ttl_seconds=HOME_SECONDS,
    read=SELF,
    document="tmp:home:<username>",
)
TMP_HOME_STATE = Key(
    "tmp:home:<username>:state",
    "hash",
    "How much the home feed beside it holds.",
    contains=(
        "`upto` → posts made until then are in it; `floor` → posts made after that are in it ('' if all are); "
        "`follows` → whom it was built from"
    ),
    owner="username",
    element_regex="upto|floor|follows",
    lifetime="15 minutes after the last read",
    ttl_seconds=HOME_SECONDS,
    read=SELF,
)

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

CATALOGUE = Catalogue.from_module(
    "social",
    globals(),
    {"username": USERNAME, "post": UUID, "comment": UUID, "tag": r"[^\s{}:,#]{1,100}"},
)
