"""Every key of social. Keys with `document` are the documented ones. The others follow them: the other side of a
relation, an order for paging, a queue of work.
"""

from __future__ import annotations

from plaza.core.comment_tree import MAX_EDITS, UUID
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

SELF, PUBLIC, ADMIN, NO_ACCESS = KeyAccess.SELF, KeyAccess.PUBLIC, KeyAccess.ADMIN, KeyAccess.NONE

MS = "Unix milliseconds"

PRIVATE = {
    "first_name": "first name",
    "last_name": "last name",
    "email": "e-mail address",
    "phone": "phone number",
    "phone_number": "phone number, under the name that some clients use",
    "address": "postal address",
    "date_of_birth": "date of birth",
    "birth_date": "date of birth, under the name that some clients use",
    "ssn": "social security number",
    "credit_card": "credit card number",
    "bank_account": "bank account",
    "ip_address": "IP address",
    "device_id": "device id",
}
# Numbers that identify a person or their money.
ENCRYPTED = ("ssn", "credit_card", "bank_account")
# The same limits as in the routes.
_LONG = {"address"}
_LONG_CHARACTERS, _LINE_CHARACTERS = 2_000, 200

# Data of a banned post is shown to admins only, as in the routes.
_BESIDE_POST = RequiresKey("post:<post>", repair="post <post>")
_BANNED = HiddenWhile("post:<post>", "banned")

USER = Key(
    "user:<username>",
    "hash",
    "A user's profile.",
    owner="username",
    fields=(
        HashField("username", "the username, which is the id", value_regex="<username>", required=True),
        HashField("display_name", "display name"),
        HashField("bio", "biography", write=SELF, max_length=_LONG_CHARACTERS),
        HashField("avatar", "URL of the avatar"),
        HashField("links", "external links", write=SELF, max_length=_LONG_CHARACTERS),
        HashField("role", "`user`, `model` or `admin`", value_regex="user|model|admin", required=True),
        HashField("postCount", "number of posts", value_regex="<count>", required=True),
        HashField("followerCount", "number of followers", value_regex="<count>", required=True),
        HashField("followingCount", "number of users followed", value_regex="<count>", required=True),
        HashField("created_at", f"when the account was created, {MS}", value_regex="<ms>", required=True),
        *(
            HashField(
                name,
                says,
                SELF,
                SELF,
                _LONG_CHARACTERS if name in _LONG else _LINE_CHARACTERS,
                encrypted=name in ENCRYPTED,
                recorded_as="email_changed" if name == "email" else "",
            )
            for name, says in PRIVATE.items()
        ),
        HashField("password", "Plaza never writes it; if another service does, no route returns it", read=NO_ACCESS),
        HashField("password_hash", "Plaza never writes it here: it is in `auth:<username>`", read=NO_ACCESS),
    ),
    invariants=(Formula("no field holds a password"),),
    repair="user <username>",
    read=PUBLIC,
    write=SELF,
    document="user:<username>",
)
USER_POSTS = Key(
    "user:<username>:posts",
    "zset",
    "A user's posts, including banned ones.",
    contains="post id",
    score=f"creation time, {MS}",
    owner="username",
    element_regex="<post>",
    invariants=(
        CountField("user:<username>", "postCount", repair="user_counts <username>"),
        Formula("each is a post of this user, scored by its `created_at`"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="authored <post> <username>",
    read=PUBLIC,
    document="user:<username>:posts",
)
USER_FOLLOWERS = Key(
    "user:<username>:followers",
    "set",
    "The users who follow this user.",
    contains="username",
    owner="username",
    element_regex="<username>",
    invariants=(
        CountField("user:<username>", "followerCount", repair="user_counts <username>"),
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
    "The users that this user follows. Source data of a follow.",
    contains="username",
    owner="username",
    element_regex="<username>",
    invariants=(
        CountField("user:<username>", "followingCount", repair="user_counts <username>"),
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
    "The posts that a user bookmarked. Source data of a bookmark.",
    contains="post id",
    score=f"time of the bookmark, {MS}",
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
    "The followers by time of the follow, for paging.",
    contains="username",
    score=f"time of the follow, {MS}",
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
    "The users followed by time of the follow, for paging and for building a home feed.",
    contains="username",
    score=f"time of the follow, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(SameMembers("user:<username>:following"),),
    repair="follow <username> <other>",
    read=PUBLIC,
)
USER_LIKED = Key(
    "user:<username>:liked",
    "zset",
    "The posts that a user likes: the other side of `post:<post>:likes`, for flags and for account deletion.",
    contains="post id",
    score=f"time of the like, {MS}",
    owner="username",
    element_regex="<post>",
    invariants=(MirrorOf("post:<post>:likes:recent", same_score=True),),
    repair="like <post> <username>",
    read=SELF,
)
USER_COMMENTS = Key(
    "user:<username>:comments",
    "zset",
    "A user's comments, for account deletion and export.",
    contains="comment id",
    score=f"creation time, {MS}",
    owner="username",
    element_regex="<comment>",
    invariants=(ScoreField("comment:<comment>", "created_at"),),
    repair="commented <comment> <username>",
    read=SELF,
)
USER_BLOCKED = Key(
    "user:<username>:blocked",
    "zset",
    "The users that this user blocks.",
    contains="username",
    score=f"since, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:blocked_by", same_score=True),),
    repair="block <username> <other>",
    read=SELF,
)
USER_BLOCKED_BY = Key(
    "user:<username>:blocked_by",
    "zset",
    "The users who block this user. A block hides each from the other, so both sides are indexed.",
    contains="username",
    score=f"since, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:blocked", same_score=True),),
    repair="block <other> <username>",
    read=ADMIN,
)
USER_MUTED = Key(
    "user:<username>:muted",
    "zset",
    "The users that this user mutes: their posts are left out of feeds.",
    contains="username",
    score=f"since, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:muted_by", same_score=True),),
    repair="mute <username> <other>",
    read=SELF,
)
USER_MUTED_BY = Key(
    "user:<username>:muted_by",
    "zset",
    "The users who mute this user, for account deletion.",
    contains="username",
    score=f"since, {MS}",
    owner="username",
    element_regex="<username>",
    invariants=(MirrorOf("user:<username>:muted", same_score=True),),
    repair="mute <other> <username>",
    read=ADMIN,
)
USER_POINTS = Key(
    "user:<username>:points",
    "hash",
    "Engagement points of each of the user's posts that is not banned and has any, and their sum.",
    contains="post id → points; `total` → their sum",
    owner="username",
    element_regex="<post>|total",
    value_regex="<count>",
    invariants=(
        Formula("`likes*3 + comments*5 + bookmarks*4` of each post"),
        Formula("`total` is the sum of the other fields"),
        RequiresKey("user:<username>", repair="gone <username>"),
    ),
    repair="points <username>",
    read=SELF,
)
USER_VERSION = Key(
    "user:<username>:version",
    "string",
    "The version of the profile fields that posts copy. It grows with each change.",
    contains="a whole number",
    owner="username",
    element_regex="<count>",
    invariants=(RequiresKey("user:<username>"),),
    repair="version <username>",
    read=SELF,
)
USER_LEAVING = Key(
    "user:<username>:leaving",
    "string",
    "This account is being deleted. The username is free when nothing of it is left.",
    contains=f"since, {MS}",
    owner="username",
    element_regex="<ms>",
    invariants=(Formula("the username is in `users:leaving`"),),
    repair="leaving <username>",
    marks_deletion_of="username",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USERS_LEAVING = Key(
    "users:leaving",
    "zset",
    "Accounts that are being deleted, so that a worker can continue.",
    contains="username",
    score=f"since, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has a `user:<username>:leaving`"),),
    repair="leaving <username>",
    lifetime="until the deletion is done",
    read=ADMIN,
)
USER_RENAMING = Key(
    "user:<username>:renaming",
    "hash",
    "This account is being renamed. Both usernames are reserved until everything is moved.",
    owner="username",
    fields=(
        HashField("to", "at the old username: the new one", read=ADMIN),
        HashField("since", f"at the old username: start time, {MS}", read=ADMIN),
        HashField(
            "phase", "at the old username: `begun`, `moving`, or `closing` when the new account can sign in", read=ADMIN
        ),
        HashField("from", "at the new username: the old one", read=ADMIN),
    ),
    marks_deletion_of="username",
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RENAMING = Key(
    "users:renaming",
    "hash",
    "Accounts that are being renamed, so that a worker can continue.",
    contains="old username → new username",
    lifetime="until the renaming is done",
    read=ADMIN,
)
USERS_RENAMED = Key(
    "users:renamed",
    "hash",
    "Former usernames, so that mentions of them lead to the user. A user who has the name now comes first.",
    contains="old username → current username",
    element_regex="<username>",
    value_regex="<username>",
    invariants=(Formula("each current username is a user's"),),
    repair="renamed <username>",
    lifetime="until the account is deleted",
    read=ADMIN,
)
USERS_RESTYLE = Key(
    "users:restyle",
    "hash",
    "Users whose posts still have an old avatar, display name or role.",
    contains="username → `version|position`: the profile's version, and the last post updated",
    element_regex="<username>",
    value_regex=r"<count>\|.*",
    lifetime="until all posts are updated",
    read=ADMIN,
)
IMPORTS = Key(
    "imports",
    "hash",
    "Unfinished files of `plaza import`, so that the next run continues where the last one stopped.",
    contains="id of the file → JSON `[bytes done, lines done, counts, type, …]`",
    value_regex=r"\[.*\]",
    lifetime="until the file is done",
    read=ADMIN,
)
AUTH_USER = Key(
    "auth:<username>",
    "hash",
    "A user's credentials. No route or proxy reads them.",
    contains="`password_hash` → argon2 or bcrypt; `family:<session>` → `sha256 of the current refresh token"
    "|expiry|sign-in|last use|address|device`, times in ms; "
    "`registered` → hashes of the `Idempotency-Key` and the profile of the registration, and its time; "
    "`suspended_at`, `suspended_by` → when and by which admin the account was suspended",
    owner="username",
    element_regex="password_hash|synced_hash|registered|suspended_at|suspended_by|family:.+",
    invariants=(RequiresKey("user:<username>"),),
    repair="auth <username>",
)

POST = Key(
    "post:<post>",
    "hash",
    "A post, with a copy of its author's profile.",
    owner="post",
    fields=(
        HashField("id", "UUID", value_regex="<post>", required=True),
        HashField("user_id", "username of the author", value_regex="<username>", required=True),
        HashField("content", "the text", required=True),
        HashField("media_url", "URL of an image or video; by default that of the first picture"),
        HashField("media", "JSON: the pictures, with id, width, height, blurhash and alt; absent if none"),
        HashField("created_at", f"creation time, {MS}", value_regex="<ms>", required=True),
        HashField("edited_at", f"time of the last edit, {MS}; absent if never edited", value_regex="<ms>"),
        HashField("hashtags", "hashtags, lower case, separated by commas", value_regex=r"[^\s{}:#]*"),
        HashField(
            "listed_hashtags",
            "hashtags of the list that are also in the text, separated by commas; absent if none",
            value_regex=r"[^\s{}:#]+",
        ),
        HashField("username", "the author's username", value_regex="<username>", required=True),
        HashField("avatar", "the author's avatar"),
        HashField("display_name", "the author's display name"),
        HashField("user_role", "the author's role", value_regex="user|model|admin", required=True),
        HashField("user_version", "the version of the profile that was copied", read=ADMIN, value_regex="<count>"),
        HashField("likesCount", "number of likes", value_regex="<count>", required=True),
        HashField("commentsCount", "number of comments", value_regex="<count>", required=True),
        HashField("bookmarksCount", "number of bookmarks", value_regex="<count>", required=True),
        HashField("banned", "`true`, or absent", value_regex="true"),
        HashField("banned_at", f"time of the ban, {MS}", read=ADMIN, value_regex="<ms>"),
        HashField("banned_by", "the admin who banned it", read=ADMIN),
    ),
    invariants=(
        Reference("user:<username>", "user_id"),
        Formula("every feed and sum that should have it has it"),
        Formula("its copy of the profile is current, or the author is in `users:restyle`"),
    ),
    repair="post <post>",
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>",
)
POST_LIKES = Key(
    "post:<post>:likes",
    "set",
    "The users who like a post. Source data of a like.",
    contains="username",
    owner="post",
    element_regex="<username>",
    invariants=(
        CountField("post:<post>", "likesCount", repair="post_counts <post>"),
        MirrorOf("user:<username>:liked"),
        _BESIDE_POST,
    ),
    repair="like <post> <username>",
    read=PUBLIC,
    hidden=_BANNED,
    document="post:<id>:likes",
)
POST_LIKES_RECENT = Key(
    "post:<post>:likes:recent",
    "zset",
    "The likes by time, for paging.",
    contains="username",
    score=f"time, {MS}",
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
    "The users who bookmarked a post.",
    contains="username",
    owner="post",
    element_regex="<username>",
    invariants=(
        CountField("post:<post>", "bookmarksCount", repair="post_counts <post>"),
        MirrorOf("user:<username>:bookmarked"),
        _BESIDE_POST,
    ),
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
    invariants=(
        CountField("post:<post>", "commentsCount", repair="post_counts <post>"),
        Reference("comment:<comment>"),
        _BESIDE_POST,
    ),
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
    score=f"creation time, {MS}",
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
    f"The texts of a post before each edit, oldest first; the last {MAX_EDITS}.",
    contains="JSON `{content, hashtags, until}`, `until` in Unix milliseconds",
    owner="post",
    element_regex=r"\{.*\}",
    invariants=(_BESIDE_POST,),
    repair="post <post>",
    read=ADMIN,
)
POST_COMMENT_PARENTS = Key(
    "post:<post>:comments:parents",
    "hash",
    "Which comments of a post reply to which. Source data of a reply.",
    contains="comment id → id of the comment that it replies to",
    owner="post",
    element_regex="<comment>",
    value_regex="<comment>",
    invariants=(
        Formula("each is a comment or stub of the post, and in the replies of the other"),
        _BESIDE_POST,
    ),
    repair="thread <post> <comment> <comment>",
    read=PUBLIC,
    hidden=_BANNED,
)
POST_COMMENT_REPLIES = Key(
    "post:<post>:comments:replies:<comment>",
    "zset",
    "The replies to a comment by time, for paging. A deleted reply stays while it has replies itself.",
    contains="comment id",
    score=f"creation time, {MS}",
    owner="post",
    element_regex="<comment>",
    invariants=(Formula("each replies to this comment, by `post:<post>:comments:parents`"), _BESIDE_POST),
    repair="thread <post> <other> <comment>",
    read=PUBLIC,
    hidden=_BANNED,
)
POST_COMMENT_STUBS = Key(
    "post:<post>:comments:stubs",
    "zset",
    "Deleted comments that have replies. Nothing of them is left but the id and the time.",
    contains="comment id",
    score=f"creation time, {MS}",
    owner="post",
    element_regex="<comment>",
    invariants=(Formula("each has replies and is not among the comments of the post"), _BESIDE_POST),
    repair="thread <post> <comment> <comment>",
    lifetime="until its last reply is deleted",
    read=PUBLIC,
    hidden=_BANNED,
)
POST_COMMENTS_TOP = Key(
    "post:<post>:comments:top",
    "zset",
    "The comments and stubs that reply to no other, by time, for paging. Absent if the post has no replies: then it is "
    "all comments.",
    contains="comment id",
    score=f"creation time, {MS}",
    owner="post",
    element_regex="<comment>",
    invariants=(Formula("each is a comment or stub of the post that replies to none"), _BESIDE_POST),
    repair="thread <post> <comment> <comment>",
    read=PUBLIC,
    hidden=_BANNED,
)
POSTS_LEAVING = Key(
    "posts:leaving",
    "zset",
    "Deleted posts whose likes, bookmarks and comments are still being deleted.",
    contains="post id",
    score=f"since, {MS}",
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
        HashField("post_id", "id of the post", value_regex="<post>", required=True),
        HashField("username", "username of the author", value_regex="<username>", required=True),
        HashField("content", "the text", required=True),
        HashField("created_at", f"creation time, {MS}", value_regex="<ms>", required=True),
        HashField("edited_at", f"time of the last edit, {MS}; absent if never edited", value_regex="<ms>"),
        HashField("reply_to", "id of the comment that it replies to; absent if none", value_regex="<comment>"),
    ),
    invariants=(
        Reference("post:<post>", "post_id"),
        Formula("it is in the comments of its post and of its author"),
        Formula("`reply_to` is what `post:<post>:comments:parents` has"),
    ),
    repair="commented <comment> <username>",
    read=PUBLIC,
    hidden=HiddenWhile("post:<post>", "banned", via="post_id"),
)
COMMENT_EDITS = Key(
    "comment:<comment>:edits",
    "list",
    f"The texts of a comment before each edit, oldest first; the last {MAX_EDITS}.",
    contains="JSON `{content, until}`, `until` in Unix milliseconds",
    owner="comment",
    element_regex=r"\{.*\}",
    invariants=(RequiresKey("comment:<comment>"),),
    repair="comment_edits <comment>",
    read=ADMIN,
)

EXPLORE_FEED = Key(
    "explore:feed",
    "zset",
    "All posts that are not banned.",
    contains="post id",
    score=f"creation time, {MS}",
    element_regex="<post>",
    invariants=(Formula("each is a post that is not banned, scored by its `created_at`"),),
    repair="post <post>",
    read=PUBLIC,
    document="explore:feed",
)
POSTS_BANNED = Key(
    "posts:banned",
    "zset",
    "The banned posts, for the list of operators.",
    contains="post id",
    score=f"time of the ban, {MS}",
    element_regex="<post>",
    invariants=(Formula("each is a banned post, scored by its `banned_at`"),),
    repair="post <post>",
    read=ADMIN,
)
HASHTAG_POSTS = Key(
    "hashtag:<tag>:posts",
    "zset",
    "The posts with a hashtag that are not banned.",
    contains="post id",
    score=f"creation time, {MS}",
    owner="tag",
    element_regex="<post>",
    invariants=(Formula("each is a post with the hashtag that is not banned, scored by its `created_at`"),),
    repair="tagged <post> <tag>",
    read=PUBLIC,
    document="hashtag:<tag>:posts",
)
HASHTAG_RANKED = Key(
    "hashtag:<tag>:ranked",
    "zset",
    "The posts with a hashtag that are not banned and at most 14 days old, by engagement.",
    contains="post id",
    score="`(likes*3 + comments*5 + bookmarks*4) / (hours since creation + 1)`, within 2%",
    owner="tag",
    element_regex="<post>",
    invariants=(Formula("each is a post with the hashtag that is not banned"),),
    repair="tagged <post> <tag>",
    read=PUBLIC,
    document="hashtag:<tag>:ranked",
)
RANKING_DUE = Key(
    "ranking:due",
    "zset",
    "When each post with hashtags is due to be rescored, so that stored scores stay within 2% of the formula.",
    contains="post id",
    score=f"time, {MS}",
    element_regex="<post>",
    invariants=(Reference("post:<post>"), Formula("the same posts as in `ranking:posts`")),
    repair="post <post>",
    lifetime="a post is removed after 14 days",
    read=ADMIN,
)
RANKING_POSTS = Key(
    "ranking:posts",
    "hash",
    "What rescoring needs of each post, so that the posts need not be read.",
    contains="post id → `created_at|0|tags`; earlier releases store the points instead of 0",
    element_regex="<post>",
    value_regex=r"<ms>\|<count>\|.+",
    invariants=(Formula("the time and the tags of the post"),),
    repair="post <post>",
    lifetime="a post is removed after 14 days",
    read=ADMIN,
)
FEEDS_PUSH = Key(
    "feeds:push",
    "zset",
    "Queue of new posts to be added to existing home feeds.",
    contains="post id",
    element_regex="<post>",
    score=f"creation time, {MS}",
    lifetime="until it is processed",
    read=ADMIN,
)
FEEDS_DROP = Key(
    "feeds:drop",
    "zset",
    "Queue of deleted and banned posts to be removed from existing home feeds.",
    contains="`<author>|<post id>`",
    element_regex=r"<username>\|<post>",
    score=f"time of the deletion or ban, {MS}",
    lifetime="until it is processed",
    read=ADMIN,
)
FEEDS_IMPORTED = Key(
    "feeds:imported",
    "string",
    "The last import of a post that is older than what home feeds merge: feeds built before it are built again.",
    contains="`time:post id`",
    element_regex=r"<ms>:<post>",
    read=ADMIN,
)
USERS_REGULAR = Key(
    "users:regular",
    "zset",
    "Users with the role `user`.",
    contains="username",
    score=f"when the account was created, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has that role, scored by its `created_at`"),),
    repair="user <username>",
    read=PUBLIC,
    document="users:regular",
)
USERS_MODELS = Key(
    "users:models",
    "zset",
    "Users with the role `model`.",
    contains="username",
    score=f"when the account was created, {MS}",
    element_regex="<username>",
    invariants=(Formula("each has that role, scored by its `created_at`"),),
    repair="user <username>",
    read=PUBLIC,
    document="users:models",
)
MODELS_TOP_ENGAGEMENT = Key(
    "models:top:engagement",
    "zset",
    "Models by the total engagement of their posts that are not banned.",
    contains="username",
    score="sum of `likes*3 + comments*5 + bookmarks*4`",
    element_regex="<username>",
    invariants=(Formula("each is a model, scored by the `total` of `user:<username>:points`"),),
    repair="user <username>",
    read=PUBLIC,
    document="models:top:engagement",
)

# Fifteen minutes after the last read.
HOME_SECONDS = 900
TMP_HOME = Key(
    "tmp:home:<username>",
    "zset",
    "The newest posts of the users that this user follows.",
    contains="post id",
    score=f"creation time, {MS}",
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
    "What the cached home feed contains.",
    contains=(
        "`upto` → posts created before are merged; `floor` → complete from this time on ('' if it has all posts); "
        "`follows` → number and time of the follows that it was built from; `empty` → 1 if it has no posts, so no key; "
        "`imported` → the last import when it was built; `built` → when"
    ),
    owner="username",
    element_regex="upto|floor|follows|empty|imported|built",
    lifetime="15 minutes after the last read",
    ttl_seconds=HOME_SECONDS,
    read=SELF,
)

CATALOGUE = Catalogue.from_module(
    "social",
    globals(),
    {"username": USERNAME, "post": UUID, "comment": UUID, "tag": r"[^\s{}:,#]{1,100}"},
)
