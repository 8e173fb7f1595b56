"""What schemathesis needs to know of Plaza's callers and objects. `fuzz.py` passes it in `PLAZA_FUZZ`, as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis
from schemathesis import AuthContext, Case, GenerationMode, Response

from plaza.core.auth import Auth
from plaza.core.settings import Settings

GIVEN = json.loads(os.environ["PLAZA_FUZZ"])
AUTH = Auth(Settings(jwt_secret=GIVEN["jwt_secret"], api_key=GIVEN["api_key"]))


class CallerCredentials:
    """A new token for each request, since signing out and changing the password revoke older ones; or the API key."""

    def get(self, case: Case[Any], context: AuthContext) -> dict[str, str]:
        if GIVEN["caller"] == "admin":
            return {"X-API-Key": GIVEN["api_key"]}
        return {"Authorization": f"Bearer {AUTH.issue(GIVEN['username'], 'user')}"}

    def set(self, case: Case[Any], data: dict[str, str], context: AuthContext) -> None:
        case.headers.update(data)


if GIVEN["caller"] != "anonymous":
    schemathesis.auth(refresh_interval=None)(CallerCredentials)


@schemathesis.hook
def before_call(context: Any, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Put the ids of real objects into every other valid request.

    Cursors and idempotency keys refer to earlier requests, so valid requests have none.
    """
    if case.meta is None or case.meta.generation.mode is GenerationMode.NEGATIVE:
        return
    case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body.pop("cursor", None)
    case.headers.pop("Idempotency-Key", None)
    if case.method != "DELETE" and hash(case.id) % 2:
        for name in case.path_parameters or {}:
            known = GIVEN["ids"].get(f"{case.path} {name}")
            if known is not None:
                case.path_parameters[name] = known


# Operations that refuse with 422 `invalid` what no schema can exclude.
STRICTER_THAN_THEIR_SCHEMA = {
    # oneself as the other user
    *("followUser", "unfollowUser", "blockUser", "unblockUser", "muteUser", "unmuteUser"),
    # a day in the future, an end before its start
    *("trackDay", "listStatistics", "listSessionStatistics", "countViewers"),
    # one of two fields
    "readNotifications",
    # objects that are named in the body or the query
    *("setAvatar", "createPost", "createReport"),
    *("createComment", "listComments", "createArticleComment", "listArticleComments"),
    # what is a hashtag, an address on the web, a text that is visible
    *("listHashtagFeed", "listRankedHashtagFeed", "listTopPosts", "createArticle", "createWebhook", "updateWebhook"),
    *("createChallenge", "createChallengePost", "createItem", "updateItem"),
    # names that are reserved
    "register",
}


@schemathesis.check
def accepts_what_the_schema_allows(context: Any, response: Response, case: Case[Any]) -> None:
    """A request that the schema allows is refused with 400 or 422 only by a code of its own: `weak_password`."""
    if (
        case.meta is None
        or case.meta.generation.mode is GenerationMode.NEGATIVE
        or response.status_code not in (400, 422)
    ):
        return
    if "proxy" in case.operation.tags:
        return  # commands are refused by themselves
    code = response.json()["code"]
    refused_by_schema = code in ("bad_json", "bad_request", "invalid")
    stricter = code == "invalid" and case.operation.definition.raw["operationId"] in STRICTER_THAN_THEIR_SCHEMA
    assert not refused_by_schema or stricter, f"The schema allows this request, and it was refused: {response.text}"
