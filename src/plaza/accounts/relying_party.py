"""Plaza as a relying party of WebAuthn: its name and origin, and the checks of the library `webauthn`.

A passkey belongs to the domain of `PLAZA_PUBLIC_URL`. Browsers accept a domain on https, or `localhost`; an IP address
has no passkeys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from plaza.core.addresses import parse_address
from plaza.core.domain import InvalidPasskey
from plaza.core.passkey_credentials import NewPasskeyCredential, PasskeyCredential
from plaza.core.settings import Settings

NAME: Final = "Plaza"
# How long a browser waits for its user.
TIMEOUT_MS: Final = 120_000


class NewPasskey(Struct, frozen=True):
    """A passkey whose registration is valid."""

    credential_id: bytes
    public_key: bytes
    sign_count: int
    backed_up: bool


class RelyingParty(Struct, frozen=True):
    """The domain that passkeys belong to, and the only origin whose pages may use them."""

    id: str
    origin: str

    @classmethod
    def from_settings(cls, settings: Settings) -> RelyingParty:
        """Return the domain and origin of the public address. Without one, pages are opened at `localhost`."""
        parts = urlsplit(settings.public_url or f"http://localhost:{settings.port}")
        return cls(parts.hostname or "", f"{parts.scheme}://{parts.netloc}")

    @property
    def is_usable(self) -> bool:
        """Whether browsers accept passkeys for it: a domain on https, or `localhost`."""
        is_local = self.id == "localhost" or self.id.endswith(".localhost")
        return is_local or (self.origin.startswith("https://") and parse_address(self.id) is None)

    def registration_options(
        self, username: str, user_handle: bytes, challenge: bytes, known: Sequence[bytes]
    ) -> dict[str, Any]:
        """Return what a browser needs to make a passkey. `known` are those that the user has already."""
        # Loaded at the first use: most processes never need the library, and it takes a tenth of a second.
        import webauthn
        from webauthn.helpers import structs

        options = webauthn.generate_registration_options(
            rp_id=self.id,
            rp_name=NAME,
            user_name=username,
            user_id=user_handle,
            challenge=challenge,
            timeout=TIMEOUT_MS,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[structs.PublicKeyCredentialDescriptor(id) for id in known],
        )
        return dict(msgspec.json.decode(webauthn.options_to_json(options)))

    def sign_in_options(self, challenge: bytes) -> dict[str, Any]:
        """Return what a browser needs to sign in with any passkey of this domain, whatever the username."""
        import webauthn
        from webauthn.helpers import structs

        options = webauthn.generate_authentication_options(
            rp_id=self.id,
            challenge=challenge,
            timeout=TIMEOUT_MS,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        )
        return dict(msgspec.json.decode(webauthn.options_to_json(options)))

    def verify_new(self, credential: NewPasskeyCredential, challenge: bytes) -> NewPasskey:
        """Check a new passkey: challenge, origin, domain, and that the authenticator verified its user."""
        import webauthn

        try:
            verified = webauthn.verify_registration_response(
                credential=msgspec.to_builtins(credential),
                expected_challenge=challenge,
                expected_rp_id=self.id,
                expected_origin=self.origin,
                require_user_verification=True,
            )
        except Exception as error:  # the library has many, also those of CBOR and of certificates
            raise InvalidPasskey from error
        return NewPasskey(
            verified.credential_id,
            verified.credential_public_key,
            verified.sign_count,
            verified.credential_backed_up,
        )

    def verify(self, credential: PasskeyCredential, challenge: bytes, public_key: bytes, sign_count: int) -> int:
        """Check a used passkey: signature, challenge, origin, domain and user verification. Returns its new count."""
        import webauthn

        try:
            verified = webauthn.verify_authentication_response(
                credential=msgspec.to_builtins(credential),
                expected_challenge=challenge,
                expected_rp_id=self.id,
                expected_origin=self.origin,
                credential_public_key=public_key,
                credential_current_sign_count=sign_count,
                require_user_verification=True,
            )
        except Exception as error:
            raise InvalidPasskey from error
        return verified.new_sign_count
