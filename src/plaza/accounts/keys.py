"""The keys of accounts. All are Plaza's own, and no caller of the HTTP proxy may read them."""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess, Reference
from plaza.core.tokens import USERNAME

# A reset link opens an account, so it lives an hour. A verification link only confirms an address.
RESET_SECONDS: Final = 3_600
VERIFY_SECONDS: Final = 86_400
# The time that a user has to confirm with a passkey.
CHALLENGE_SECONDS: Final = 300
# The time that a user has to sign in at the provider.
STATE_SECONDS: Final = 600

ACCOUNT_EMAIL = Key(
    "accounts:<username>:email",
    "hash",
    "The e-mail address that a user verified. It counts while it equals `email` of `user:<username>`.",
    owner="username",
    fields=(
        HashField("address", "normalized", read=KeyAccess.NONE, required=True),
        HashField("verified_at", "Unix milliseconds", read=KeyAccess.NONE, value_regex="<ms>", required=True),
    ),
    read=KeyAccess.NONE,
)
ACCOUNT_MFA = Key(
    "accounts:<username>:mfa",
    "hash",
    "A user's second factors: the encrypted TOTP secret and its last time step, passkeys, digests of recovery codes.",
    contains="`pending_secret`; `totp_secret`, `last_step`, `enabled_at`; `user_handle` → the id for authenticators; "
    "`passkey:<digest of its id>` → JSON: name, credential_id, public_key, sign_count, times; "
    "`recovery:<digest>` → `1`",
    owner="username",
    element_regex="pending_secret|totp_secret|last_step|enabled_at|user_handle|(passkey|recovery):[0-9a-f]{64}",
    read=KeyAccess.NONE,
)
PASSKEY_USER = Key(
    "accounts:passkey:<passkey_digest>",
    "string",
    "The user of a passkey, by the SHA-256 of the id that its authenticator gave it.",
    contains="username",
    element_regex="<username>",
    owner="passkey_digest",
    read=KeyAccess.NONE,
)
USED_CHALLENGE = Key(
    "accounts:challenge:<challenge_digest>",
    "string",
    "A challenge that a passkey has answered: it cannot be answered again.",
    contains="`1`",
    owner="challenge_digest",
    lifetime="5 minutes, as long as a challenge is valid",
    ttl_seconds=CHALLENGE_SECONDS,
    read=KeyAccess.NONE,
)
ADDRESS_USERS = Key(
    "accounts:address:<address_digest>",
    "set",
    "The users who verified an address, by its SHA-256: password reset finds them here.",
    contains="username",
    owner="address_digest",
    element_regex="<username>",
    invariants=(Reference("accounts:<username>:email"),),
    read=KeyAccess.NONE,
)
ONE_TIME_LINK = Key(
    "accounts:link:<link_digest>",
    "string",
    "What a one-time link is for, by the SHA-256 of its token. Reading deletes it.",
    contains="JSON: purpose, username, address",
    owner="link_digest",
    lifetime="1 hour for a password reset, 24 hours for a verification",
    ttl_seconds=VERIFY_SECONDS,
    read=KeyAccess.NONE,
)

OPENID_STATE = Key(
    "accounts:openid:<state_digest>",
    "string",
    "A sign-in at the OpenID provider that has begun, by the SHA-256 of its state. Reading deletes it.",
    contains="JSON: nonce, verifier, next",
    owner="state_digest",
    lifetime="10 minutes",
    ttl_seconds=STATE_SECONDS,
    read=KeyAccess.NONE,
)
IDENTITY = Key(
    "accounts:identity:<identity_digest>",
    "string",
    "The user of an identity at the OpenID provider, by the SHA-256 of issuer and subject.",
    contains="username",
    element_regex="<username>",
    owner="identity_digest",
    read=KeyAccess.NONE,
)
ACCOUNT_IDENTITIES = Key(
    "accounts:<username>:identities",
    "set",
    "The identities that a user signs in with.",
    contains="SHA-256 of issuer and subject",
    element_regex="<identity_digest>",
    owner="username",
    invariants=(Reference("accounts:identity:<identity_digest>"),),
    read=KeyAccess.NONE,
)

CATALOGUE = Catalogue.from_module(
    "accounts",
    globals(),
    {
        "username": USERNAME,
        "address_digest": "[0-9a-f]{64}",
        "link_digest": "[0-9a-f]{64}",
        "state_digest": "[0-9a-f]{64}",
        "identity_digest": "[0-9a-f]{64}",
        "passkey_digest": "[0-9a-f]{64}",
        "challenge_digest": "[0-9a-f]{64}",
    },
)
