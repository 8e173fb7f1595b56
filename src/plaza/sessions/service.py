"""Sessions: a cookie, the token in it, and what the server knows of that token.

The token is an upper-case UUID of version 4, as the document has it: 122 random bits of the operating system, six
fewer than OWASP's round 128 and far beyond its floor of 64; the other six spell "version 4". Only tokens that this
server made are ever accepted: anything else in the cookie gets a new session.

Every request that needs its session does so inside the one function that also does its work (`sessions.lua`), so that
knowing who asks costs no round trip of its own, and nothing is written for a session that has ended meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plaza.core.clock import Clock
from plaza.core.domain import PasswordCheck
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, Position, list_checksum, page_by_position
from plaza.core.revocations import Revocations
from plaza.core.tokens import is_username
from plaza.shop.keys import SHOP_ACCOUNT_SESSIONS, SHOP_RECENT, SHOP_SESSION, SHOP_VIEWED, UUID, of_account, of_session
from plaza.shop.model import Login, Session, SessionMoved, SessionsPage, WrongLogin

# A person who comes back within a week finds everything in place; after a month they prove again who they are.
IDLE_SECONDS: Final = 7 * 86_400
ABSOLUTE_SECONDS: Final = 30 * 86_400

# Requests that left the browser before it heard of its new token.
GRACE_SECONDS: Final = 10

# Someone may log in more than once while a request is under way.
MOST_MOVES: Final = 3

# How many sessions there may be; beyond it the oldest go.
MOST_SESSIONS: Final = 10_000_000
CLEAN_BATCH: Final = 200

_TOKEN = re.compile(UUID)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long sessions live, in seconds, and how many there may be."""

    idle: float = IDLE_SECONDS
    absolute: float = ABSOLUTE_SECONDS
    most: int = MOST_SESSIONS


@dataclass(frozen=True, slots=True)
class Visit:
    """The session behind a request. `new`: its token must be sent as a cookie. `moved`: it was replaced just now.

    `heir` is who logged in with a guest's token that was replaced: what it puts in the cart is theirs, unseen.
    """

    token: str
    user: str | None
    since: float
    seen: float
    new: bool = False
    moved: bool = False
    heir: str | None = None

    @property
    def id(self) -> str:
        return public_id(self.token)

    @property
    def since_ms(self) -> int:
        return round(self.since * 1000)

    @property
    def was_guest(self) -> bool:
        """A guest's that was replaced: it sees what it had, and nothing of whoever logged in with it."""
        return self.moved and self.user is None

    @property
    def buyer(self) -> str:
        """Whose the orders of this session are."""
        return f"guest:{self.id}" if self.user is None else f"user:{self.user}"


def new_token() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)).upper()


def is_token(text: str | None) -> bool:
    return text is not None and _TOKEN.fullmatch(text) is not None


def public_id(token: str) -> str:
    """A name for a session that does not open it."""
    return hashlib.sha256(f"plaza shop session {token}".encode()).hexdigest()[:32]


class Sessions:
    """Begins, recognises and ends sessions."""

    def __init__(
        self,
        functions: Functions,
        clock: Clock,
        *,
        accounts: PasswordCheck | None = None,
        revocations: Revocations | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._accounts = accounts
        self._cutoffs = Revocations() if revocations is None else revocations
        self.limits = limits or Limits()
        # Told the token and the cart of a guest who logs in while that cart is being checked out.
        self.handed_over: Callable[[str, str], Awaitable[None]] | None = None

    async def visit(
        self, cookie: str | None, verb: str = "shop_enter", *args: Any, keys: Sequence[str] = ()
    ) -> tuple[Visit, list[Any]]:
        """Recognise a session and perform a verb of it, in one round trip; two for a dead or made-up token.

        Returns the session and the rest of the verb's reply. A missing, dead or made-up token gets a new session.
        """
        if cookie is not None and is_token(cookie):
            found = await self._as(cookie, verb, args, keys)
            if found is not None:
                return found
        token = new_token()
        reply = await self._call(token, verb, args, keys, new="1")
        return self._visit(token, reply, new=True), reply[4:]

    async def _as(
        self, token: str, verb: str, args: Sequence[Any], keys: Sequence[str]
    ) -> tuple[Visit, list[Any]] | None:
        reply = await self._call(token, verb, args, keys)
        if reply[0] == "moved":
            return await self._as_replaced(token, reply, verb, args, keys)
        if reply[0] != "live":
            return None
        visit = self._visit(token, reply)
        return None if await self._cut_off(visit) else (visit, reply[4:])

    async def _as_replaced(
        self, replaced: str, reply: list[Any], verb: str, args: Sequence[Any], keys: Sequence[str]
    ) -> tuple[Visit, list[Any]] | None:
        """A request that was under way when its token was replaced: done for the session that followed.

        Whoever sent it has, or will have, the new token: no other cookie must cross that. Whoever planted the old one
        must learn nothing by it, so what was a guest's token is a guest's still.
        """
        _, to, since, was = reply[:4]
        for _ in range(MOST_MOVES):
            if reply[0] != "moved" or not reply[1]:
                break
            to = reply[1]
            reply = await self._call(to, verb, args, keys)
        guest = Visit(replaced, None, float(since), float(self.now()), moved=True)
        if reply[0] != "live":
            return guest, []
        visit = self._visit(to, reply, moved=True)
        if await self._cut_off(visit):
            return None
        return (visit if was else replace(guest, heir=visit.user)), reply[4:]

    async def _cut_off(self, visit: Visit) -> bool:
        """Whether the person was deleted, renamed or suspended since; then the session ends."""
        if not self.is_cut_off(visit.user, visit.since):
            return False
        await self._end(visit.token)
        return True

    def is_cut_off(self, user: str | None, since: float) -> bool:
        return user is not None and self._cutoffs.of(user) >= round(since * 1000)

    def _visit(self, token: str, reply: Sequence[Any], *, new: bool = False, moved: bool = False) -> Visit:
        return Visit(token, reply[1] or None, float(reply[2]), float(reply[3]), new, moved)

    async def _call(self, token: str, verb: str, args: Sequence[Any], keys: Sequence[str], new: str = "0") -> list[Any]:
        # What follows from it elsewhere is that the token was seen, or has ended: no answer waits for that.
        reply: list[Any] = await self.functions.run_deferred(
            verb, [*of_session(token), *keys], token, self.now(), self.limits.idle, self.limits.absolute, new, *args
        )
        return reply

    async def peek(self, token: str) -> str | None:
        """Who is signed in with a token, if anybody. One round trip; the session is not touched."""
        limits = (self.limits.idle, self.limits.absolute)
        user, since = await self.functions.query("shop_peek", of_session(token), self.now(), *limits)
        return None if not user or self.is_cut_off(user, float(since)) else str(user)

    async def cart_before(self, token: str) -> list[str]:
        """What was in a guest's cart when the token was replaced: item, quantity, …"""
        parcel: str | None = await self._valkey.call("HGET", SHOP_SESSION(token), "parcel")
        return (parcel or "").split()

    async def viewed_before(self, token: str) -> list[str]:
        """What a session had viewed when its token was replaced, the newest first: item, time, …"""
        viewed = await self._valkey.call("ZRANGE", SHOP_VIEWED(token), 0, -1, "REV", "WITHSCORES")
        return [part for item, at in viewed for part in (item, repr(at))]

    async def login(self, cookie: str | None, login: Login, address: str | None = None) -> Visit:
        """Sign in under a new token; a guest's cart joins the account's. Two round trips beside the password's.

        Requests in flight with the old token are served for a few seconds more.
        """
        actor, since = None, self.stamp(login.username)
        if self._accounts is not None and is_username(login.username):
            actor = await self._accounts.check(login.username, login.password, address, login.code)
        if actor is None:
            raise WrongLogin("Username or password is wrong.")
        return await self.admit(cookie, actor.name, since)

    def stamp(self, username: str) -> str:
        """When a session of a person begins. Take it before asking what entitles them: who is suspended, renamed or
        deleted in between is signed out by it. It is later than any cut-off known here, whose clock may be ahead."""
        return text_of_ms(max(self._clock.now_ms(), self._cutoffs.of(username) + 1))

    async def admit(self, cookie: str | None, username: str, since: str | None = None) -> Visit:
        """A session of a person who has proved who they are; what they did as a guest comes along. Two round trips.

        The old token is not replaced before there is a new one: if that fails, the guest is a guest still, and the
        cart where it was.
        """
        token, now = new_token(), since or self.stamp(username)
        await self.functions.run("shop_open", of_session(token), token, now, username)
        if cookie is not None and is_token(cookie):
            till = text_of_ms(self._clock.now_ms() + GRACE_SECONDS * 1000)
            handing = (cookie, now, till, token, username)
            ordering = await self.functions.run("shop_hand_over", of_session(cookie), *handing)
            if ordering and self.handed_over is not None:
                await self.handed_over(cookie, ordering)
        return Visit(token, username, float(now), float(now), new=True)

    async def logout(self, cookie: str | None) -> None:
        """End a session and everything of its token. The account's cart stays for the next login."""
        if cookie is None or not is_token(cookie):
            return
        token = cookie
        for _ in range(MOST_MOVES):
            moved, to = await self._valkey.call("HMGET", SHOP_SESSION(token), "moved", "to")
            if not moved:
                await self._end(token)
                return
            if not to or self._clock.now_s() > float(moved):
                return  # a token that was replaced long ago is worth nothing, not even an end
            token = to

    async def _end(self, token: str, seen: str = "") -> bool:
        return bool(await self.functions.run("shop_end", of_session(token), token, seen))

    async def own(self, visit: Visit) -> list[Session]:
        """The sessions of the person behind one, or only this one of a guest. Two round trips."""
        if visit.user is None or visit.moved:
            return [self._session(visit, current=True)]
        tokens = await self._valkey.call("ZRANGE", SHOP_ACCOUNT_SESSIONS(visit.user), 0, -1, "REV")
        rows = await self._valkey.batch([("HMGET", SHOP_SESSION(t), "user", "since", "seen", "moved") for t in tokens])
        found = []
        for token, (user, since, seen, moved) in zip(tokens, rows, strict=True):
            if user == visit.user and not moved:
                one = Visit(token, user, float(since), float(seen))
                found.append(self._session(one, current=token == visit.token))
        now = self._clock.now_s()
        return [session for session in found if session.expires_at >= now]

    async def page(self, visit: Visit, page: Page) -> SessionsPage:
        """A page of one's sessions, the newest first."""
        own = {session.id: session for session in await self.own(visit)}
        listed = f"sessions of {visit.buyer}"
        order = sorted(own.values(), key=lambda session: (-session.created_at, session.id))

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            places = [(s.id, Position(list_checksum(listed), s.created_at, s.id)) for s in order]
            if start is not None:
                places = [p for p in places if (-p[1].score, p[0]) > (-start.score, start.id)]
            return places[:count]

        async def load(ids: Sequence[str]) -> list[Session | None]:
            return [own[id] for id in ids]

        paged = await page_by_position(listed, page, after, load)
        return SessionsPage(paged.items, paged.pagination)

    async def end_own(self, visit: Visit, id: str) -> None:
        """End one of one's own sessions. What belongs to others is not found."""
        if visit.moved:
            raise SessionMoved("Log in is under way: ask again with the new cookie.")
        tokens = [visit.token]
        if visit.user is not None:
            tokens = await self._valkey.call("ZRANGE", SHOP_ACCOUNT_SESSIONS(visit.user), 0, -1)
        token = next((token for token in tokens if secrets.compare_digest(public_id(token), id)), None)
        if token is None:
            raise NotFound("You have no such session.", id=id)
        await self._end(token)

    def session(self, visit: Visit) -> Session:
        return self._session(visit, current=True)

    def _session(self, visit: Visit, *, current: bool) -> Session:
        ends = min(visit.seen + self.limits.idle, visit.since + self.limits.absolute)
        return Session(visit.id, visit.user, visit.since, visit.seen, ends, current)

    async def clean(self) -> int:
        """End sessions that are idle for too long, and the oldest beyond the limit, in batches. How many it ended."""
        ended = 0
        while batch := await self._to_clean():
            results = await asyncio.gather(*(self._end(token, seen) for token, seen in batch))
            ended += sum(results)
            if not any(results):
                break  # all were seen again meanwhile
        return ended

    async def _to_clean(self) -> list[tuple[str, str]]:
        """The oldest sessions that should not be there, with when they were seen: one seen since is spared."""
        count, rows = await self._valkey.batch(
            [("ZCARD", SHOP_RECENT()), ("ZRANGE", SHOP_RECENT(), 0, CLEAN_BATCH - 1, "WITHSCORES")]
        )
        beyond = count - self.limits.most
        idle_since = self._clock.now_s() - self.limits.idle
        return [
            (token, repr(float(seen)))
            for index, (token, seen) in enumerate(rows)
            if index < beyond or float(seen) < idle_since
        ]

    async def sign_out(self, username: str) -> None:
        """End every session of a person, whose password has changed. The account's cart stays."""
        for token in await self._valkey.call("ZRANGE", SHOP_ACCOUNT_SESSIONS(username), 0, -1):
            await self._end(token)

    async def end_all(self, username: str) -> None:
        """End every session of a person, and forget their cart: they are leaving."""
        await self.functions.run("shop_forget", of_account(username), username)

    def now(self) -> str:
        return text_of_ms(self._clock.now_ms())


def text_of_ms(ms: int) -> str:
    """Unix seconds, as they are written down: milliseconds are exact in text, and in a double."""
    return f"{ms // 1000}.{ms % 1000:03d}"
