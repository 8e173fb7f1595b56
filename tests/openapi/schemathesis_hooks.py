"""What schemathesis needs to know of Plaza's callers and objects. `fuzz.py` passes it in `PLAZA_FUZZ`, as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis
from schemathesis import AuthContext, Case, GenerationMode

from plaza.core.auth import Auth
from plaza.core.settings import Settings

GIVEN = json.loads(os.environ["PLAZA_FUZZ"])
AUTH = Auth(Settings(jwt_secret=GIVEN["jwt_secret"], api_key=GIVEN["api_key"]))


class Credentials:
    """A new token for each request, since signing out and changing the password revoke older ones; or the API key."""

    def get(self, case: Case, context: AuthContext) -> dict[str, str]:
        if GIVEN["caller"] == "admin":
            return {"X-API-Key": GIVEN["api_key"]}
        return {"Authorization": f"Bearer {AUTH.issue(GIVEN['username'], 'user')}"}

    def set(self, case: Case, data: dict[str, str], context: AuthContext) -> None:
        case.headers.update(data)


if GIVEN["caller"] != "anonymous":
    schemathesis.auth(refresh_interval=None)(Credentials)


@schemathesis.hook
def before_call(context: Any, case: Case, kwargs: dict[str, Any]) -> None:
    """Put the ids of real objects into every other valid request.

    Cursors and idempotency keys refer to earlier requests, so valid requests have none.
    """
    if case.meta is None or case.meta.generation.mode is GenerationMode.NEGATIVE:
        return
    case.query.pop("cursor", None)
    case.headers.pop("Idempotency-Key", None)
    if case.method != "DELETE" and hash(case.id) % 2:
        for name in case.path_parameters or {}:
            known = GIVEN["ids"].get(f"{case.path} {name}")
            if known is not None:
                case.path_parameters[name] = known
