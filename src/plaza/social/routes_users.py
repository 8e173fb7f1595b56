"""HTTP routes of users and their relations."""

from __future__ import annotations

from typing import Any

from plaza.core.auth import Actor
from plaza.core.errors import Conflict, Unauthenticated
from plaza.core.http.access import ADMIN, AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import ZIP, Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_export import AccountExport
from plaza.social.avatars import Avatars
from plaza.social.credentials import Credentials
from plaza.social.model import (
    DeletionResult,
    NewAvatar,
    NewRole,
    NoProfile,
    PasswordConfirmation,
    Profile,
    Relation,
    User,
    Username,
    UserPage,
)
from plaza.social.relations import Relations
from plaza.social.users import Users

route = Routes("users", about="Profiles, follows, blocks, mutes, roles and suspensions.")


def resolve_username(actor: Actor | None, username: str) -> str:
    """Return the username that a path means: `me` is the caller."""
    if username != "me":
        return username
    if actor is None:
        raise Unauthenticated("`me` needs authentication.")
    return actor.name


@route.get("/users/{username}", access=PUBLIC, raises=[NoProfile])
async def get_user(actor: Actor | None, username: Username, users: Users) -> User:
    """Get a profile. Private fields are included only for the user themself."""
    return await users.get(actor, resolve_username(actor, username))


@route.patch(
    "/users/{username}",
    access=USER,
    raises=[NoProfile],
    example={"bio": "Gardener.", "display_name": "Ana"},
    example_parameters={"username": "me"},
)
async def update_user(actor: Actor, username: Username, body: Profile, request: Request, users: Users) -> User:
    """Update the caller's profile. Null removes a field."""
    return await users.update_profile(actor, resolve_username(actor, username), body, request.address)


@route.delete(
    "/users/{username}",
    access=AUTHENTICATED,
    other_responses={202: DeletionResult},
    raises=[NoProfile, Conflict],
    example={"password": "correct horse battery"},
    example_parameters={"username": "me"},
)
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
    done = await deletion.delete(actor, name, request.address)
    return Response(DeletionResult(name, done), status=200 if done else 202)


@route.put(
    "/users/me/avatar", access=USER, raises=[NoProfile], example={"media": "7d0c2f63-5c0a-4f0e-9d53-1b7a5c3f9e21"}
)
async def set_avatar(actor: Actor, body: NewAvatar, avatars: Avatars) -> User:
    """Set your avatar to an uploaded picture, also in all your posts."""
    return await avatars.set(actor, body.media)


@route.delete("/users/me/avatar", access=USER, raises=[NoProfile])
async def delete_avatar(actor: Actor, avatars: Avatars) -> User:
    """Remove your avatar."""
    return await avatars.delete(actor)


@route.get("/users/me/export", access=USER, limit="export", limit_first=True)
async def export_user_data(actor: Actor, request: Request, exports: AccountExport) -> Response[dict[str, Any]]:
    """Export everything Plaza stores about the caller, as a stream."""
    return Response(await exports.everything(actor, request.address))


@route.get("/users/me/export.zip", access=USER, limit="export", limit_first=True, media_type=ZIP)
async def export_user_archive(actor: Actor, request: Request, exports: AccountExport) -> Response[bytes]:
    """Export the same with the caller's pictures, as a ZIP archive."""
    return Response(await exports.archive(actor, request.address), media_type=ZIP)


@route.patch(
    "/users/{username}/role", access=ADMIN, logged_fields=("role",), raises=[NoProfile], example={"role": "model"}
)
async def set_user_role(actor: Actor, username: Username, body: NewRole, users: Users) -> User:
    """Set a user's role."""
    return await users.set_role(actor, resolve_username(actor, username), body.role)


@route.put("/users/{username}/suspension", access=ADMIN, raises=[NoProfile])
async def suspend_user(actor: Actor, username: Username, users: Users) -> User:
    """Suspend an account and revoke its tokens."""
    return await users.suspend(actor, resolve_username(actor, username), on=True)


@route.delete("/users/{username}/suspension", access=ADMIN, raises=[NoProfile])
async def unsuspend_user(actor: Actor, username: Username, users: Users) -> User:
    """End a suspension."""
    return await users.suspend(actor, resolve_username(actor, username), on=False)


@route.post("/users/{username}/follow", access=USER, raises=[NoProfile])
async def follow_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Follow a user. Following twice changes nothing."""
    return await relations.follow(actor, resolve_username(actor, username))


@route.delete("/users/{username}/follow", access=USER)
async def unfollow_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unfollow a user."""
    return await relations.unfollow(actor, resolve_username(actor, username))


@route.post("/users/{username}/block", access=USER)
async def block_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Block a user: follows end both ways, and each is hidden from the other."""
    return await relations.block(actor, resolve_username(actor, username))


@route.delete("/users/{username}/block", access=USER)
async def unblock_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unblock a user."""
    return await relations.unblock(actor, resolve_username(actor, username))


@route.post("/users/{username}/mute", access=USER)
async def mute_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Mute a user: hide their posts from the caller's feeds."""
    return await relations.mute(actor, resolve_username(actor, username))


@route.delete("/users/{username}/mute", access=USER)
async def unmute_user(actor: Actor, username: Username, relations: Relations) -> Relation:
    """Unmute a user."""
    return await relations.unmute(actor, resolve_username(actor, username))


@route.get("/users/me/blocked", access=USER)
async def list_blocked_users(actor: Actor, page: Page, relations: Relations) -> UserPage:
    """List the users that the caller blocks."""
    found = await relations.blocked(actor, page)
    return UserPage(found.items, found.pagination)


@route.get("/users/me/muted", access=USER)
async def list_muted_users(actor: Actor, page: Page, relations: Relations) -> UserPage:
    """List the users that the caller mutes."""
    found = await relations.muted(actor, page)
    return UserPage(found.items, found.pagination)


@route.get("/users/{username}/followers", access=PUBLIC)
async def list_followers(actor: Actor | None, username: Username, page: Page, relations: Relations) -> UserPage:
    """List a user's followers, latest first."""
    found = await relations.followers(actor, resolve_username(actor, username), page)
    return UserPage(found.items, found.pagination)


@route.get("/users/{username}/following", access=PUBLIC)
async def list_following(actor: Actor | None, username: Username, page: Page, relations: Relations) -> UserPage:
    """List the users that a user follows, latest first."""
    found = await relations.following(actor, resolve_username(actor, username), page)
    return UserPage(found.items, found.pagination)
