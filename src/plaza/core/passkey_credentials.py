"""What a browser sends of a passkey: the JSON of WebAuthn (`PublicKeyCredential.toJSON()`).

Fields that Plaza does not read are ignored: browsers add some.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from plaza.core.validation_messages import described_pattern

_BASE64URL: Final = described_pattern("This is not base64url", r"^[A-Za-z0-9_-]+={0,2}$(?!\n)")
# Binary data in base64url. A credential id has at most 1,023 bytes; signatures and client data are shorter than this.
Binary = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=_BASE64URL)]
# The public key with an attestation, which may contain certificates.
LongBinary = Annotated[str, Meta(min_length=1, max_length=65_536, pattern=_BASE64URL)]


class AttestationResponse(msgspec.Struct, frozen=True):
    """The response of an authenticator that made a passkey."""

    clientDataJSON: Binary  # noqa: N815 the name of the standard
    attestationObject: LongBinary  # noqa: N815
    transports: Annotated[list[Annotated[str, Meta(max_length=30)]], Meta(max_length=10)] = []


class NewPasskeyCredential(msgspec.Struct, frozen=True):
    """A new passkey: what `navigator.credentials.create` returns."""

    id: Binary
    rawId: Binary  # noqa: N815
    type: Literal["public-key"]
    response: AttestationResponse


class AssertionResponse(msgspec.Struct, frozen=True):
    """The response of an authenticator that proved that it has a passkey."""

    clientDataJSON: Binary  # noqa: N815
    authenticatorData: Binary  # noqa: N815
    signature: Binary
    userHandle: Binary | None = None  # noqa: N815


class PasskeyCredential(msgspec.Struct, frozen=True):
    """A used passkey: what `navigator.credentials.get` returns."""

    id: Binary
    rawId: Binary  # noqa: N815
    type: Literal["public-key"]
    response: AssertionResponse
