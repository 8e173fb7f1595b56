"""Talks to an OpenID provider: discovery, the authorization code flow with PKCE, and the check of ID tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuthError
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from plaza.accounts.model import Identity, ProviderFailed, SignInRefused
from plaza.core.errors import SettingError

TIMEOUT_SECONDS: Final = 10.0
# How long the provider's endpoints and keys are cached. An unknown key is looked up again at once.
CACHE_SECONDS: Final = 3_600.0
# A provider's clock may differ a little.
LEEWAY_SECONDS: Final = 60
SCOPE: Final = "openid profile email"
# Never `none`, and never an algorithm that takes a public key for a shared secret.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")


class OpenIdClient:
    """A client of one provider."""

    def __init__(self, issuer: str, client_id: str, client_secret: str, redirect_uri: Callable[[], str]) -> None:
        if urlsplit(issuer).scheme not in ("http", "https"):
            raise SettingError("PLAZA_OIDC_ISSUER must be the https address of an OpenID provider.")
        self._issuer = issuer.rstrip("/")
        self._client_id = client_id
        self._client_secret = client_secret
        self._redirect_uri = redirect_uri
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: KeySet | None = None

    async def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Return the address at the provider where a user signs in."""
        metadata = await self.discover()
        async with self._client() as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        return str(url)

    async def exchange(self, code: str, nonce: str, verifier: str) -> Identity:
        """Exchange the code of a callback for the user's identity. Raises `SignInRefused` if anything is wrong."""
        metadata = await self.discover()
        try:
            async with self._client() as client:
                token = await client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=verifier)
        except OAuthError as error:
            raise SignInRefused from error
        except (httpx2.HTTPError, ValueError) as error:
            raise ProviderFailed from error
        return await self._verify(str(token.get("id_token", "")), nonce)

    def _client(self) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            self._client_id,
            self._client_secret,
            scope=SCOPE,
            redirect_uri=self._redirect_uri(),  # of the request: it contains the root path
            code_challenge_method="S256",
            timeout=TIMEOUT_SECONDS,
        )

    async def _verify(self, id_token: str, nonce: str) -> Identity:
        """Check the signature and every claim that OpenID Connect Core 3.1.3.7 requires."""
        try:
            claims = (await self._decode(id_token)).claims
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_SECONDS,
                # As the provider writes it: some issuers end with a slash, some do not.
                iss={"essential": True, "value": (await self.discover())["issuer"]},
                sub={"essential": True},
                aud={"essential": True, "value": self._client_id},
                exp={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(claims)
            if claims.get("azp", self._client_id) != self._client_id:
                raise SignInRefused
            return msgspec.convert(claims, Identity)
        except (JoseError, ValueError, msgspec.ValidationError) as error:
            raise SignInRefused from error

    async def _decode(self, id_token: str) -> jwt.Token:
        try:
            return jwt.decode(id_token, await self._key_set(), algorithms=ALGORITHMS)
        except (JoseError, ValueError):
            # The provider may have rotated its keys.
            return jwt.decode(id_token, await self._key_set(fresh=True), algorithms=ALGORITHMS)

    async def _key_set(self, *, fresh: bool = False) -> KeySet:
        if self._keys is None or fresh:
            self._keys = KeySet.import_key_set(await self._get((await self.discover())["jwks_uri"]))
        return self._keys

    async def discover(self) -> dict[str, Any]:
        """Return the provider's metadata. Raises `ProviderFailed` if it does not respond."""
        if time.monotonic() >= self._metadata_until:
            metadata = await self._get(f"{self._issuer}/.well-known/openid-configuration")
            if metadata.get("issuer", "").rstrip("/") != self._issuer:
                raise ProviderFailed("The provider's metadata names another issuer.")
            self._metadata, self._metadata_until = metadata, time.monotonic() + CACHE_SECONDS
        return self._metadata

    async def _get(self, url: str) -> Any:
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
                response = await client.get(url)
                response.raise_for_status()
                return response.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise ProviderFailed(f"{urlsplit(url).hostname} does not respond.") from error
