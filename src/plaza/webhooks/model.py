"""The types of webhooks, and their pure functions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from plaza.core.errors import Conflict, Gone, Invalid, NotFound
from plaza.core.paging import Pagination
from plaza.core.validation_messages import described_pattern

# Every event is compared with every endpoint, and a dead endpoint's queue takes up to 50 MB.
MAX_WEBHOOKS: Final = 100
# Events that wait for one endpoint. Beyond it the oldest are dropped and counted.
MAX_QUEUED: Final = 100_000
# Finished deliveries that are listed, per endpoint.
MAX_DELIVERIES: Final = 10_000
KEPT_MS: Final = 7 * 86_400_000

# Requests that one endpoint gets at the same time.
CONCURRENCY: Final = 16
# So many failures in a row mean that the endpoint is down: one request at a time, with growing waits.
MAX_FAILURES: Final = CONCURRENCY

# 5 s, 10 s, 20 s, … up to 4 h, for three days: about 28 attempts.
FIRST_RETRY_MS: Final = 5_000
MAX_RETRY_MS: Final = 4 * 3_600_000
GIVE_UP_MS: Final = 3 * 86_400_000
RETRY_JITTER: Final = 0.2

# After a rotation, requests are signed with the old secret too for this long.
ROTATION_MS: Final = 24 * 3_600_000

TEST_EVENT: Final = "webhook.test"

_ID: Final = described_pattern("Invalid id of a webhook", r"^[0-9a-f]{16}$(?!\n)")
_DELIVERY_ID: Final = described_pattern("Invalid id of a delivery", r"^[0-9]{1,16}-[0-9]{1,10}$(?!\n)")
_TYPE_PATTERN: Final = described_pattern(
    "Invalid event type. Use a type such as post.created, a pattern such as post.*, or *",
    r"^(\*|[a-z_]{1,30}\.(\*|[a-z_]{1,30}))$(?!\n)",
)
_LINE: Final = described_pattern(
    "Invalid text. Remove line breaks and control characters", r"^[^\x00-\x1f\x7f]*$(?!\n)"
)

WebhookId = Annotated[str, Meta(pattern=_ID, description="Id of a webhook.", examples=["9c41d07be2a35f68"])]
DeliveryId = Annotated[str, Meta(pattern=_DELIVERY_ID, description="Id of a delivery.", examples=["1760000000000-0"])]
Url = Annotated[str, Meta(min_length=1, max_length=2_000, description="Where events are sent, by POST.")]
TypePattern = Annotated[str, Meta(pattern=_TYPE_PATTERN, description="An event type, `post.*` or `*`.")]
TypePatterns = Annotated[list[TypePattern], Meta(min_length=1, max_length=50)]
Description = Annotated[str, Meta(max_length=200, pattern=_LINE)]

DeliveryState = Literal["retrying", "delivered", "failed"]


class SendOutcome(Struct, frozen=True):
    """The result of a request: the status code, or what went wrong."""

    code: int | None
    error: str
    duration_ms: int
    retry_after_ms: int = 0  # how long the endpoint asks to be left alone

    @property
    def is_delivered(self) -> bool:
        return self.code is not None and 200 <= self.code < 300

    @property
    def is_gone(self) -> bool:
        """Whether the endpoint asks to stop."""
        return self.code == 410

    @property
    def reason(self) -> str | None:
        """What went wrong, for operators; None if it was delivered."""
        if self.is_delivered:
            return None
        if self.code is not None and 300 <= self.code < 400:
            return f"HTTP {self.code}: redirects are not followed."
        return self.error or f"HTTP {self.code}"


class NoWebhook(NotFound):
    title, code = "There is no such webhook", "no_webhook"


class NoDelivery(NotFound):
    title, code = "There is no such delivery", "no_delivery"


class TooManyWebhooks(Conflict):
    title, code = "There are too many webhooks", "too_many_webhooks"


class WebhookDisabled(Conflict):
    title, code = "The webhook is disabled", "webhook_disabled"


class EventTrimmed(Gone):
    title, code = "The event is no longer stored", "event_trimmed"


class NewWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Url
    types: TypePatterns
    description: Description = ""
    include_imports: Annotated[bool, Meta(description="Also send what an import or a sync brings in.")] = False


class WebhookChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a webhook. A missing field stays as it is; `enabled` disables it, or enables it again."""

    url: Url | UnsetType = UNSET
    types: TypePatterns | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    include_imports: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint and how it is doing. Times are Unix milliseconds.

    `waiting` is the number of queued events, `dropped` of those that a full queue lost. `failing_since` is set while
    its last request failed.
    """

    id: str
    url: str
    types: list[str]
    description: str
    include_imports: bool
    enabled: bool
    disabled_at: int | None
    disabled_reason: str | None
    created_at: int
    created_by: str | None
    waiting: int
    delivered: int
    dropped: int
    failing_since: int | None
    next_attempt_at: int | None
    last_delivered_at: int | None
    last_error: str | None

    @property
    def state(self) -> Literal["working", "failing", "disabled"]:
        if not self.enabled:
            return "disabled"
        return "working" if self.failing_since is None else "failing"


class WebhookWithSecret(Webhook, frozen=True, kw_only=True):
    """A webhook with the secret that verifies its requests, which is shown this once."""

    secret: str


class WebhookList(msgspec.Struct, frozen=True):
    webhooks: list[Webhook]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event for one endpoint, once it was sent: `event` is its id. Times are Unix milliseconds."""

    id: str
    event: str
    type: str
    status: DeliveryState
    attempts: int
    response_code: int | None
    error: str | None
    duration_ms: int
    first_attempt_at: int
    last_attempt_at: int
    next_attempt_at: int | None


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivery as it is stored, without its id. `stream` and `entry` say where the event comes from."""

    event: str
    type: str
    status: DeliveryState
    attempts: int
    duration_ms: int
    first_attempt_at: int
    last_attempt_at: int
    response_code: int | None = None
    error: str | None = None
    stream: str = ""
    entry: str = ""


class RetriedDelivery(msgspec.Struct, frozen=True):
    id: str


class DeliveryPage(msgspec.Struct, frozen=True):
    deliveries: list[Delivery]
    pagination: Pagination


class EndpointResponse(msgspec.Struct, frozen=True):
    """The endpoint's response to a test event."""

    delivered: bool
    response_code: int | None
    error: str | None
    duration_ms: int


def type_matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression for the event types that some patterns select."""
    return re.compile("|".join(re.escape(pattern).replace(r"\*", ".*") for pattern in patterns))


def check_types(patterns: Sequence[str], known: Sequence[str]) -> None:
    """Raise `Invalid` if a pattern selects no known event type: it is probably misspelt."""
    for i, pattern in enumerate(patterns):
        if not any(type_matcher([pattern]).fullmatch(each) for each in known):
            raise Invalid(f"There are no events of the type {pattern}. docs/events.md lists them.", field=f"types[{i}]")


def parse_retry_after(value: str, now: datetime) -> int:
    """Return the wait of a `Retry-After` header (seconds or a date), at most `MAX_RETRY_MS`; 0 if it is neither."""
    if value.isascii() and value.isdigit():
        return min(int(value[:9]) * 1000, MAX_RETRY_MS)
    try:
        seconds = (parsedate_to_datetime(value) - now).total_seconds()
    except (ValueError, TypeError):  # no date, or one without a time zone
        return 0
    return round(min(max(seconds, 0) * 1000, MAX_RETRY_MS))


def retry_wait_ms(attempts: int) -> int:
    """Return how long to wait after so many failed attempts, with jitter so that retries do not come all at once."""
    wait: int = min(FIRST_RETRY_MS * 2 ** min(attempts - 1, 20), MAX_RETRY_MS)
    return round(wait * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))
