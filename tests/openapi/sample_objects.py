"""What the examples of the OpenAPI document name: users, posts, tokens.

An example has fixed values, such as the id of a post. Before it is sent, each value that `SAMPLES` knows is replaced by
that of an object which is created for this one request. So no example depends on another, whatever it deletes.

If your route's example names a new kind of object, add a function that creates one and returns its id, and an entry in
`SAMPLES`. If the object must be in some state first, add an entry in `PREPARATIONS` by the operation's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from itertools import count
from typing import Any, get_args

import argon2
import httpx
import msgspec
import pyotp

from plaza.accounts.email_links import Emails
from plaza.accounts.model import AccountSessionId, OneTimeLink, PasskeyId
from plaza.app import Plaza
from plaza.articles.model import ArticleCommentId, ArticleId
from plaza.challenges.model import ChallengeCommentId, ChallengeId, DateText, InvitedName
from plaza.challenges.model import PostId as ChallengePostId
from plaza.core.notification_source import Activity, GroupName
from plaza.core.pictures import PictureId
from plaza.desk.model import NoteId
from plaza.live.model import EventId
from plaza.live.model import SessionId as LiveSessionId
from plaza.notifications.model import NotificationId
from plaza.notifications.recorder import Recorder
from plaza.reports.model import ReportId
from plaza.sessions.model import SessionId
from plaza.shop.model import ItemId, OrderId
from plaza.social.model import CommentId, PostId
from plaza.webhooks.cloud_events import OutgoingEvent
from plaza.webhooks.delivery_queue import DeliveryQueue
from plaza.webhooks.model import DeliveryId, SendOutcome, WebhookId
from tests.accounts.authenticator import Authenticator
from tests.media.images import picture

PASSWORD = "correct horse battery"
_NUMBERS = count(1)


def example_of(kind: Any) -> Any:
    """The example that a type declares: `Annotated[str, Meta(examples=[…])]`."""
    return next(meta.examples[0] for meta in get_args(kind) if isinstance(meta, msgspec.Meta) and meta.examples)


@cache
def password_hash() -> str:
    return argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


class SampleObjects:
    """Creates what one example names. Ben is the caller, Ana another user; both are new."""

    def __init__(self, plaza: Plaza, http: httpx.AsyncClient, webhook_url: str) -> None:
        self.plaza = plaza
        self.http = http
        self.webhook_url = webhook_url
        self.number = next(_NUMBERS)
        self.ana, self.ben = f"ana{self.number}", f"ben{self.number}"
        self.key = {"x-api-key": plaza.core.settings.secret("api_key")}
        self.token = {"authorization": f"Bearer {plaza.core.auth.issue(self.ben, 'user')}"}
        self.device: Authenticator | None = None
        self.credential: dict[str, Any] | None = None
        self._made: dict[Any, Any] = {}

    async def send(self, method: str, path: str, body: Any = None, *, as_admin: bool = False) -> Any:
        """The response of a request that must succeed, by the caller or with the API key."""
        response = await self.http.request(method, path, json=body, headers=self.key if as_admin else self.token)
        assert response.is_success, f"{method} {path}: {response.text}"
        return response.json() if response.content else None

    async def register(self) -> None:
        """Create both users, with a password."""
        users = [{"username": name, "password_hash": password_hash()} for name in (self.ana, self.ben)]
        await self.send("POST", "/sync/users", users, as_admin=True)

    async def replace(self, value: Any) -> Any:
        """An example with the ids of real objects in the place of those that it names."""
        if isinstance(value, dict):
            return {name: await self.replace(item) for name, item in value.items()}
        if isinstance(value, list):
            return [await self.replace(item) for item in value]
        key = (type(value), value)
        if key in self._made:
            return self._made[key]
        make = SAMPLES.get(value) if not isinstance(value, bool) else None
        self._made[key] = value if make is None else await make(self)
        return self._made[key]


async def get_ana(sample: SampleObjects) -> str:
    return sample.ana


async def get_ben(sample: SampleObjects) -> str:
    return sample.ben


async def create_post(sample: SampleObjects) -> Any:
    return (await sample.send("POST", "/posts", {"content": "Hello #travel"}))["id"]


async def create_article_comment(sample: SampleObjects) -> Any:
    article = await sample.replace(example_of(ArticleId))
    return (await sample.send("POST", f"/articles/{article}/comments", {"content": "Hello"}))["id"]


async def create_report(sample: SampleObjects) -> Any:
    post = await sample.replace(example_of(PostId))
    return (await sample.send("POST", "/reports", {"subject": "post", "id": post, "reason": "Advertising"}))["id"]


async def create_notification(sample: SampleObjects) -> str:
    ana = {"authorization": f"Bearer {sample.plaza.core.auth.issue(sample.ana, 'user')}"}
    (await sample.http.post(f"/users/{sample.ben}/follow", headers=ana)).raise_for_status()
    recorder = sample.plaza.get(Recorder)
    (source,) = [each for each in recorder.sources if each.stream == "social"]
    await recorder.refresh(source, [Activity(GroupName(sample.ben, "follow", "user"), sample.ana)])
    return "follow:user:1"


async def create_comment(sample: SampleObjects) -> Any:
    post = await sample.replace(example_of(PostId))
    return (await sample.send("POST", f"/posts/{post}/comments", {"content": "Hello"}))["id"]


async def create_refresh_token(sample: SampleObjects) -> Any:
    signed_in = await sample.send("POST", "/auth/login", {"username": sample.ben, "password": PASSWORD})
    return signed_in["refresh_token"]


async def create_account_session(sample: SampleObjects) -> str:
    return str(await create_refresh_token(sample)).split(".")[1]


async def create_verification_link(sample: SampleObjects) -> str:
    await sample.send("POST", "/auth/email", {"email": "ben@example.org", "password": PASSWORD})
    return await sample.plaza.get(Emails).new_link(OneTimeLink("verify", sample.ben, "ben@example.org"))


async def create_reset_link(sample: SampleObjects) -> str:
    await sample.plaza.get(Emails).verify(await create_verification_link(sample), None)
    return await sample.plaza.get(Emails).new_link(OneTimeLink("reset", sample.ben, "ben@example.org"))


async def create_code(sample: SampleObjects) -> str:
    """Start to set up one-time codes; returns the first code."""
    return pyotp.TOTP((await sample.send("POST", "/auth/mfa/totp", {"password": PASSWORD}))["secret"]).now()


async def create_recovery_code(sample: SampleObjects) -> Any:
    """Set up one-time codes; returns a recovery code, since the present one-time code is used."""
    confirmed = await sample.send("POST", "/auth/mfa/totp/confirm", {"code": await create_code(sample)})
    return confirmed["recovery_codes"][0]


async def prepare_second_factor(sample: SampleObjects) -> None:
    await create_recovery_code(sample)


def authenticator() -> Authenticator:
    return Authenticator(origin="http://localhost:8000", domain="localhost")


async def create_passkey(sample: SampleObjects) -> Any:
    """Add a passkey; returns its id."""
    device = authenticator()
    options = await sample.send("POST", "/auth/passkeys/options", {"password": PASSWORD})
    body = {"name": "Phone", "credential": device.create(options["options"])}
    sample.device = device
    return (await sample.send("POST", "/auth/passkeys", body))["id"]


def part_of_new_passkey(*path: str) -> Callable[[SampleObjects], Awaitable[Any]]:
    """A part of what a browser sends of a new passkey."""

    async def part(sample: SampleObjects) -> Any:
        if sample.credential is None:
            options = await sample.send("POST", "/auth/passkeys/options", {"password": PASSWORD})
            sample.credential = authenticator().create(options["options"])
        return _at(sample.credential, path)

    return part


def part_of_used_passkey(*path: str) -> Callable[[SampleObjects], Awaitable[Any]]:
    """A part of what a browser sends of a passkey that signs in."""

    async def part(sample: SampleObjects) -> Any:
        if sample.credential is None:
            await create_passkey(sample)
            assert sample.device is not None
            sample.credential = sample.device.get((await sample.send("POST", "/auth/passkeys/challenge"))["options"])
        return _at(sample.credential, path)

    return part


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


async def create_article(sample: SampleObjects) -> Any:
    body = {"title": "Streams", "link": f"https://example.org/{sample.number}", "groups": ["python"]}
    return (await sample.send("POST", "/articles", body))["id"]


async def create_challenge(sample: SampleObjects) -> Any:
    body = {"title": "Thirty runs", "category": 1, "is_public": True, "duration": 30, "unit": "km"}
    return (await sample.send("POST", "/challenges", body))["id"]


async def create_challenge_post(sample: SampleObjects) -> Any:
    challenge = await sample.replace(example_of(ChallengeId))
    await join_challenge(sample)
    return (await sample.send("POST", f"/challenges/{challenge}/posts", {"text": "Done."}))["id"]


async def create_challenge_comment(sample: SampleObjects) -> Any:
    path = f"/challenges/posts/{await sample.replace(example_of(ChallengePostId))}/comments"
    return (await sample.send("POST", path, {"content": "Well done!"}))["id"]


async def join_challenge(sample: SampleObjects) -> None:
    await sample.send("POST", f"/challenges/{await sample.replace(example_of(ChallengeId))}/join")


async def track_day(sample: SampleObjects) -> Any:
    await join_challenge(sample)
    return (await sample.send("POST", f"/challenges/{await sample.replace(example_of(ChallengeId))}/track"))["date"]


async def invite_to_challenge(sample: SampleObjects) -> None:
    challenge, name = await sample.replace(example_of(ChallengeId)), await sample.replace(example_of(InvitedName))
    await sample.send("PUT", f"/challenges/{challenge}/invitations/{name}")


async def create_event(sample: SampleObjects) -> str:
    event, session = f"launch{sample.number}", await sample.replace(example_of(LiveSessionId))
    body = {"sessions": [session], "groups": ["press"]}
    await sample.send("PUT", f"/analytics/events/{event}", body, as_admin=True)
    return event


async def name_session(sample: SampleObjects) -> str:
    return f"keynote{sample.number}"


async def create_item(sample: SampleObjects) -> Any:
    body = {"name": "Lamp", "description": "Warm light.", "price": "19.90", "qty": 10}
    return (await sample.send("POST", "/shop/items", body, as_admin=True))["id"]


async def put_item_in_cart(sample: SampleObjects) -> None:
    await sample.send("PUT", f"/shop/cart/items/{await create_item(sample)}", {"qty": 2})


async def create_order(sample: SampleObjects) -> Any:
    await put_item_in_cart(sample)
    return (await sample.send("POST", "/shop/checkout"))["id"]


async def create_note(sample: SampleObjects) -> Any:
    path = f"/admin/users/{await sample.replace('ana')}/notes"
    return (await sample.send("POST", path, {"text": "Hello."}, as_admin=True))["id"]


async def start_session(sample: SampleObjects) -> Any:
    return (await sample.send("POST", "/shop/session"))["id"]


async def create_webhook(sample: SampleObjects) -> Any:
    body = {"url": sample.webhook_url, "types": ["post.*"]}
    return (await sample.send("POST", "/webhooks", body, as_admin=True))["id"]


async def create_failed_delivery(sample: SampleObjects) -> Any:
    webhook, queue = await sample.replace(example_of(WebhookId)), DeliveryQueue(sample.plaza.core.functions)
    event = OutgoingEvent("1-0", "social-1-0", "post.liked", "1", False, b"{}")
    await queue.add(webhook, "events:social", "1-0", [event])
    (queued,) = await queue.waiting(webhook, "0-0", 1)
    await queue.failed(webhook, queued.after_attempt(1).due_again(2), SendOutcome(500, "", 3), 1, 0)
    return queued.delivery


async def create_picture(sample: SampleObjects) -> Any:
    """A picture that everyone may see, because it is an avatar."""
    response = await sample.http.post("/media", files={"file": ("a.png", picture())}, headers=sample.token)
    id = response.json()["id"]
    await sample.send("PUT", "/users/me/avatar", {"media": id})
    return id


# What creates the object that a value of an example stands for.
SAMPLES: dict[Any, Callable[[SampleObjects], Awaitable[Any]]] = {
    "ana": get_ana,
    "ben": get_ben,
    "ana.5f3b9c1e.Zm9vYmFyYmF6cXV4": create_refresh_token,
    "dmVyaWZ5X3Rva2VuX29mX2FfbGluaw": create_verification_link,
    "cmVzZXRfdG9rZW5fb2ZfYV9saW5r": create_reset_link,
    "492039": create_code,
    "k3v9-x7qm": create_recovery_code,
    example_of(AccountSessionId): create_account_session,
    example_of(PasskeyId): create_passkey,
    "bmV3LWlk": part_of_new_passkey("id"),
    "bmV3LWRhdGE": part_of_new_passkey("response", "clientDataJSON"),
    "bmV3LWtleQ": part_of_new_passkey("response", "attestationObject"),
    "dXNlZC1pZA": part_of_used_passkey("id"),
    "dXNlZC1kYXRh": part_of_used_passkey("response", "clientDataJSON"),
    "dXNlZC1hdXRo": part_of_used_passkey("response", "authenticatorData"),
    "dXNlZC1zaWc": part_of_used_passkey("response", "signature"),
    "dXNlZC11c2Vy": part_of_used_passkey("response", "userHandle"),
    example_of(PostId): create_post,
    example_of(CommentId): create_comment,
    example_of(ArticleId): create_article,
    example_of(ArticleCommentId): create_article_comment,
    example_of(ChallengeId): create_challenge,
    example_of(DateText): track_day,
    example_of(ChallengePostId): create_challenge_post,
    example_of(ChallengeCommentId): create_challenge_comment,
    example_of(EventId): create_event,
    example_of(LiveSessionId): name_session,
    example_of(ItemId): create_item,
    example_of(OrderId): create_order,
    example_of(NoteId): create_note,
    example_of(SessionId): start_session,
    example_of(NotificationId): create_notification,
    example_of(ReportId): create_report,
    example_of(WebhookId): create_webhook,
    example_of(DeliveryId): create_failed_delivery,
    example_of(PictureId): create_picture,
}

# What must happen before an operation.
PREPARATIONS: dict[str, Callable[[SampleObjects], Awaitable[None]]] = {
    "createRecoveryCodes": prepare_second_factor,
    "leaveChallenge": join_challenge,
    "trackDay": join_challenge,
    "setChallengeReminder": join_challenge,
    "removeChallengeReminder": join_challenge,
    "removeInvitation": invite_to_challenge,
    "createChallengePost": join_challenge,
    "checkOut": put_item_in_cart,
}
