"""Errors with an HTTP status and a code. `core/http/app.py` turns them into responses.

Each class with its own `code` is registered when it is defined, so a code has one meaning. A Lua `fail('<code>', …)`
raises the class of that code.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final


class OperatorError(Exception):
    """A problem that the operator can fix. The command line shows it in one line, without a trace."""


class SettingError(OperatorError):
    """A setting is invalid. It stops the start."""


class PlazaError(Exception):
    """An error response. `detail` is for readers, `code` for programs, `str()` for logs."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    code: ClassVar[str] = "internal"
    by_code: ClassVar[dict[str, type[PlazaError]]] = {}

    def __init__(self, detail: str = "", **extra: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.extra = extra  # further members of the problem document, such as `field` or `id`

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:
            known = PlazaError.by_code.setdefault(cls.code, cls)
            assert known is cls or known.__qualname__ == cls.__qualname__, f"{cls.code} is taken by {known}"


class BadRequest(PlazaError):
    status, title, code = 400, "Bad request", "bad_request"


class Unauthenticated(PlazaError):
    status, title, code = 401, "Credentials are missing or not valid", "unauthenticated"


class Forbidden(PlazaError):
    status, title, code = 403, "Not allowed", "forbidden"


class NotFound(PlazaError):
    status, title, code = 404, "Not found", "not_found"


class NeverMissing:
    """Marks the type of an id that needs no declaration: an unknown one is empty, such as a hashtag, and never 404."""


NEVER_MISSING: Final = NeverMissing()


class MethodNotAllowed(PlazaError):
    status, title, code = 405, "Method not allowed", "method_not_allowed"


class Conflict(PlazaError):
    status, title, code = 409, "Conflict with the current state", "conflict"


class Gone(PlazaError):
    status, title, code = 410, "Gone", "gone"


class TooLarge(PlazaError):
    status, title, code = 413, "Too large", "too_large"


class Invalid(PlazaError):
    """A field is not valid: `Invalid("must be 1 to 100", field="limit")`."""

    status, title, code = 422, "A field is not valid", "invalid"


class TooFast(PlazaError):
    status, title, code = 429, "Too many requests", "too_fast"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.retry_after = retry_after


class Unavailable(PlazaError):
    """A service that Plaza needs is unreachable. `retry_after` is in seconds."""

    status, title, code = 503, "Temporarily unavailable", "unavailable"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.retry_after = retry_after


class OutdatedProcess(Unavailable):
    """A newer Plaza has changed what the keys mean. Only the operator can fix that, by an upgrade."""

    title, code = "This process is older than the data", "outdated"
