"""Valid and invalid credentials. Invalid tokens are made with PyJWT or by hand, never with Plaza's own issuer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from plaza.core.auth import ADMIN, ADMITTED_ONE_IN, API, MODEL, USER, Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, SettingError, Unauthenticated
from plaza.core.http.access import Access, require_access
from plaza.core.settings import Settings
from plaza.core.tokens import Claims

SECRET = "a secret of at least thirty-two bytes"
API_KEY = "the api key of a server"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def settings(folder: Path, public: Any = None) -> Settings:
    if public is None:
        return Settings(data_dir=folder, jwt_secret=SECRET, api_key=API_KEY)
    (folder / "issuer.pem").write_bytes(pem(public))
    return Settings(data_dir=folder, jwt_secret=SECRET, api_key=API_KEY, jwt_public_key=folder / "issuer.pem")


def pem(public: Any) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = public.public_bytes(encoding, form)
    return data


@pytest.fixture
def auth(tmp_path: Path, clock: ManualClock) -> Auth:
    return Auth(settings(tmp_path), clock=clock)


def claims(clock: ManualClock, **changes: Any) -> dict[str, Any]:
    now = int(clock.now_s())
    given = {"user_id": 7, "username": "ana", "role": "user", "iat": now, "exp": now + 900, **changes}
    return {name: value for name, value in given.items() if value is not ...}


def sign_by_hand(header: dict[str, Any], payload: Any, key: bytes = SECRET.encode()) -> str:
    """A token signed with HMAC, whatever its header says."""

    def part(data: Any) -> bytes:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    signed = part(header) + b"." + part(payload)
    return (signed + b"." + part(hmac.digest(key, signed, hashlib.sha256))).decode()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def refused(auth: Auth, token: str) -> str:
    with pytest.raises(Unauthenticated) as error:
        auth.actor(bearer(token))
    assert token not in error.value.detail
    return error.value.detail


@pytest.mark.parametrize("header", ["x-authorization", "x-access-token"])
def test_each_documented_header_carries_a_token(auth: Auth, header: str) -> None:
    token = auth.issue("ana", USER)
    assert auth.actor({header: token}) == auth.actor(bearer(token)) == Actor("ana", USER)


def test_the_scheme_is_read_in_any_case_and_no_other_scheme_is_taken(auth: Auth) -> None:
    token = auth.issue("ana", USER)
    assert auth.actor({"authorization": f"bEARER  {token} "}) == Actor("ana", USER)
    for value in (token, f"Basic {token}", "Bearer", "Bearer ", ""):
        with pytest.raises(Unauthenticated):
            auth.actor({"authorization": value})


def test_without_credentials_there_is_no_actor(auth: Auth) -> None:
    assert auth.actor({"accept": "application/json"}) is None


def test_issued_tokens_have_the_documented_claims_and_are_standard_jwts(auth: Auth, clock: ManualClock) -> None:
    clock.set(1_700_000_000_123)
    token = auth.issue("ana", MODEL, groups=["vip"])
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    seen = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False})
    assert {name: seen[name] for name in ("user_id", "username", "role", "iat", "exp", "groups")} == {
        "user_id": "ana",
        "username": "ana",
        "role": "model",
        "iat": 1_700_000_000,
        "exp": 1_700_000_900,
        "groups": ["vip"],
    }
    assert auth.actor(bearer(token)) == Actor("ana", MODEL, ("vip",))


def test_further_claims_cannot_change_the_ones_that_count(auth: Auth) -> None:
    token = auth.issue("ana", USER, user_id="bob", exp=9_999_999_999, sub="ana")
    assert auth.actor(bearer(token)) == Actor("ana", USER)
    assert jwt.decode(token, options={"verify_signature": False})["exp"] != 9_999_999_999


@pytest.mark.parametrize(("username", "role"), [("me", USER), ("AUTH", USER), ("a b", USER), ("", USER), ("x", "king")])
def test_no_token_is_issued_that_would_be_refused(auth: Auth, username: str, role: Any) -> None:
    with pytest.raises(ValueError, match="a token needs a username"):
        auth.issue(username, role)


def test_a_token_of_another_system_with_our_secret_is_enough(auth: Auth, clock: ManualClock) -> None:
    token = jwt.encode(claims(clock, role="admin", groups=["staff", "x"], sub=7, iss="node"), SECRET)
    assert auth.actor(bearer(token)) == Actor("ana", ADMIN, ("staff", "x"))


@pytest.mark.parametrize(("private", "algorithm"), [(RSA_KEY, "RS256"), (EC_KEY, "ES256")])
def test_a_configured_public_key_is_accepted_beside_the_secret(
    tmp_path: Path, clock: ManualClock, private: Any, algorithm: str
) -> None:
    auth = Auth(settings(tmp_path, private.public_key()), clock=clock)
    assert auth.actor(bearer(jwt.encode(claims(clock), private, algorithm))) == Actor("ana", USER)
    assert auth.actor(bearer(auth.issue("ana", USER))) == Actor("ana", USER)


@pytest.mark.parametrize("private", [RSA_KEY, EC_KEY])
def test_the_public_key_is_never_a_secret(tmp_path: Path, clock: ManualClock, private: Any) -> None:
    public = private.public_key()
    auth = Auth(settings(tmp_path, public), clock=clock)
    text = pem(public)
    raw = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for key in (text, text.rstrip(), raw):
        for algorithm in ("HS256", "RS256", "ES256"):
            refused(auth, sign_by_hand({"alg": algorithm, "typ": "JWT"}, claims(clock), key))


@pytest.mark.parametrize(("private", "algorithm"), [(RSA_KEY, "RS512"), (RSA_KEY, "PS256"), (RSA_KEY, "RS384")])
def test_only_the_algorithm_of_the_key_is_taken(
    tmp_path: Path, clock: ManualClock, private: Any, algorithm: str
) -> None:
    auth = Auth(settings(tmp_path, private.public_key()), clock=clock)
    refused(auth, jwt.encode(claims(clock), private, algorithm))


def test_a_public_key_is_not_accepted_unless_configured(auth: Auth, clock: ManualClock) -> None:
    refused(auth, jwt.encode(claims(clock), RSA_KEY, "RS256"))
    embedded = {"kid": "1", "jwk": {"kty": "oct", "k": "AAAA"}, "jku": "https://example.org/keys"}
    refused(auth, jwt.encode(claims(clock), "another secret of thirty-two bytes.", headers=embedded))


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "", "HS384", "HS512", "RS256", None, 1, ["HS256"]]
)
def test_a_token_with_another_algorithm_is_refused_whatever_its_signature(
    auth: Auth, clock: ManualClock, algorithm: Any
) -> None:
    signed = sign_by_hand({"alg": algorithm, "typ": "JWT"}, claims(clock))
    refused(auth, signed)
    refused(auth, signed.rpartition(".")[0] + ".")
    refused(auth, signed.rpartition(".")[0])


def test_a_token_without_an_algorithm_is_refused(auth: Auth, clock: ManualClock) -> None:
    refused(auth, sign_by_hand({"typ": "JWT"}, claims(clock)))
    refused(auth, sign_by_hand({"alg": "HS256", "crit": ["exp2"], "exp2": 1}, claims(clock)))


WRONG: dict[str, dict[str, Any]] = {
    "no username": {"username": ...},
    "a username that is a number": {"username": 7},
    "a username with a space": {"username": "a b"},
    "a username with a line feed": {"username": "ana\n"},
    "a username with a colon": {"username": "ana:posts"},
    "a username with braces": {"username": "{ana}"},
    "a long username": {"username": "a" * 31},
    "an empty username": {"username": ""},
    "the name me": {"username": "me"},
    "the name AUTH": {"username": "AUTH"},
    "the API key's name": {"username": "@api"},
    "no role": {"role": ...},
    "an unknown role": {"role": "root"},
    "a role in another case": {"role": "Admin"},
    "a list of roles": {"role": ["admin"]},
    "no expiry": {"exp": ...},
    "an expiry that is null": {"exp": None},
    "an expiry that is text": {"exp": "9999999999"},
    "an expiry that is true": {"exp": True},
    "no issue time": {"iat": ...},
    "an issue time that is text": {"iat": "1"},
    "an issue time of tomorrow": {"iat": 1_700_086_400},
    "a start of tomorrow": {"nbf": 1_700_086_400},
    "another audience": {"aud": "someone-else"},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG.keys())
def test_a_well_signed_wrong_claim_is_refused(auth: Auth, clock: ManualClock, changes: dict[str, Any]) -> None:
    header = {"alg": "HS256", "typ": "JWT"}
    assert auth.actor(bearer(sign_by_hand(header, claims(clock)))) is not None  # it is the claim, not the making
    assert refused(auth, sign_by_hand(header, claims(clock, **changes))) == "The token is not valid."


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"exp": 1e999}', b"{", b"1" * 5000])
def test_a_well_signed_payload_without_claims_is_refused(auth: Auth, payload: bytes) -> None:
    refused(auth, sign_by_hand({"alg": "HS256"}, payload))


def test_a_token_changed_in_any_place_is_refused(auth: Auth) -> None:
    token = auth.issue("ana", USER)
    for i, letter in enumerate(token):
        # The signature's last character carries two bits that mean nothing; flip one that does.
        other = "A" if letter != "A" else "Q"
        if i < len(token) - 1 and letter != ".":
            refused(auth, token[:i] + other + token[i + 1 :])


@given(st.text(max_size=200))
def test_any_text_in_any_header_is_401(text: str) -> None:
    auth = Auth(Settings(jwt_secret=SECRET, api_key=API_KEY), clock=ManualClock())
    for header in ("authorization", "x-authorization", "x-access-token", "x-api-key"):
        for value in (text, f"Bearer {text}", f"{text}.{text}.{text}"):
            with pytest.raises(Unauthenticated):
                auth.actor({header: value})


def test_a_very_long_token_is_refused_before_it_is_hashed(auth: Auth, clock: ManualClock) -> None:
    assert auth.actor(bearer(sign_by_hand({"alg": "HS256"}, claims(clock, pad="x" * 5_000)))) is not None
    refused(auth, sign_by_hand({"alg": "HS256"}, claims(clock, pad="x" * 10_000)))


def test_the_api_key_has_admin_rights_and_is_not_a_user(auth: Auth) -> None:
    actor = auth.actor({"x-api-key": API_KEY})
    assert actor is API
    assert actor.is_admin
    assert actor.via_key


def test_the_api_key_may_be_sent_as_a_bearer_token(auth: Auth) -> None:
    assert auth.actor(bearer(API_KEY)) is API
    for header in ("x-authorization", "x-access-token"):
        with pytest.raises(Unauthenticated):
            auth.actor({header: API_KEY})


@pytest.mark.parametrize("key", ["", "wrong", API_KEY + "x", API_KEY[:-1], API_KEY.upper(), "é", "\ud800", "🔑"])
def test_a_wrong_api_key_is_refused_whatever_its_characters(auth: Auth, key: str) -> None:
    for headers in ({"x-api-key": key}, bearer(key)):
        with pytest.raises(Unauthenticated):
            auth.actor(headers)


def test_an_api_key_beyond_ascii_works_as_clients_send_it(tmp_path: Path) -> None:
    auth = Auth(Settings(data_dir=tmp_path, jwt_secret=SECRET, api_key="clé 🔑"))
    assert auth.actor({"x-api-key": "clé 🔑".encode().decode("latin-1")}) is API


def test_secrets_are_compared_in_constant_time(auth: Auth, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    with pytest.raises(Unauthenticated):
        auth.actor({"x-api-key": "almost"})
    assert compared == [(b"almost", API_KEY.encode())]


def test_credentials_that_differ_are_refused_and_equal_ones_are_one(auth: Auth) -> None:
    ana, bob = auth.issue("ana", USER), auth.issue("bob", USER)
    for conflict in (
        {**bearer(ana), "x-access-token": bob},
        {**bearer(ana), "x-authorization": bob},
        {"x-authorization": ana, "x-access-token": bob},
        {**bearer(ana), "x-api-key": API_KEY},
        {"x-access-token": ana, "x-api-key": API_KEY},
        {**bearer(ana), "x-api-key": "wrong"},
        {**bearer(ana), "x-access-token": ""},
    ):
        with pytest.raises(Unauthenticated):
            auth.actor(conflict)
    assert auth.actor({**bearer(ana), "x-authorization": ana, "x-access-token": ana}) == Actor("ana", USER)
    assert auth.actor({**bearer(API_KEY), "x-api-key": API_KEY}) is API


def test_a_cached_token_ends_at_its_expiry(auth: Auth, clock: ManualClock) -> None:
    token = auth.issue("ana", USER)
    assert auth.actor(bearer(token)) is not None
    clock.advance(seconds=899.999)
    assert auth.actor(bearer(token)) is not None
    clock.advance(seconds=0.001)
    assert refused(auth, token) == "The token has expired. Refresh it or sign in again."


def test_a_signature_is_checked_once_for_a_token_and_every_time_for_a_wrong_one(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    read = auth._tokens.read

    def counted(token: str, now: float) -> Claims:
        checked.append(token)
        return read(token, now)

    monkeypatch.setattr(auth._tokens, "read", counted)
    good = auth.issue("ana", USER)
    for _ in range(3):
        auth.actor(bearer(good))
    assert checked == [good]
    for _ in range(3):
        refused(auth, good + "x")
    assert checked == [good, *[good + "x"] * 3]


def test_the_token_cache_is_bounded_and_helps_more_users_than_it_holds(tmp_path: Path, clock: ManualClock) -> None:
    auth = Auth(settings(tmp_path), max_cached=3, clock=clock)
    tokens = [auth.issue(f"user{number}", USER) for number in range(6)]
    hits = 0
    for _ in range(10):
        for token in tokens:
            hits += token in auth._verified
            assert auth.actor(bearer(token))  # not cached is not refused
            assert len(auth._verified) <= 3
    assert hits >= 10, "a cache of the last three would never hit"


def test_new_tokens_take_the_place_of_old_ones(tmp_path: Path, clock: ManualClock) -> None:
    auth = Auth(settings(tmp_path), max_cached=3, clock=clock)
    old = [auth.issue(f"old{number}", USER) for number in range(3)]
    for token in old:
        auth.actor(bearer(token))
    newer = [auth.issue(f"newer{number}", USER) for number in range(ADMITTED_ONE_IN)]
    for token in newer:
        auth.actor(bearer(token))
    assert set(auth._verified) == {*old[1:], newer[-1]}
    clock.advance(seconds=901)
    newest = auth.issue("newest", USER)
    auth.actor(bearer(newest))  # at once, since the oldest has expired
    assert set(auth._verified) == {old[2], newer[-1], newest}


def test_a_very_old_token_is_refused_even_if_it_never_expires(auth: Auth, clock: ManualClock) -> None:
    token = jwt.encode(claims(clock, exp=9_999_999_999), SECRET)
    assert auth.actor(bearer(token)) is not None
    clock.advance(days=89.9)
    assert auth.actor(bearer(token)) is not None
    clock.advance(days=0.2)
    refused(auth, token)


def test_each_access_accepts_its_callers_and_no_others() -> None:
    callers = {"anonymous": None, "user": Actor("x", USER), "model": Actor("x", MODEL), "admin": Actor("x", ADMIN)}
    callers["key"] = API
    accepted = {access.name: {name for name, actor in callers.items() if _accepts(access, actor)} for access in Access}
    every, users = set(callers), {"user", "model", "admin"}
    assert accepted == {
        "PUBLIC": every,
        "SESSION": every,
        "AUTHENTICATED": users | {"key"},
        "USER": users,
        "VIEWER": users,
        "EVENTS": {"admin", "key"},
        "ADMIN": {"admin", "key"},
        "API_KEY": {"key"},
    }


def test_the_owner_an_admin_and_the_api_key_are_accepted_and_others_are_not() -> None:
    for actor in (Actor("ana", USER), Actor("root", ADMIN), API):
        actor.require_self_or_admin("ana")
    with pytest.raises(Forbidden):
        Actor("bob", MODEL).require_self_or_admin("ana")


def _accepts(access: Access, actor: Actor | None) -> bool:
    try:
        require_access(access, actor)
    except (Unauthenticated, Forbidden):
        return False
    return True


def test_a_public_key_that_cannot_be_used_is_refused_at_start(tmp_path: Path) -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    wrong = [pem(small), pem(ec.generate_private_key(ec.SECP384R1()).public_key())]
    wrong += [pem(ed25519.Ed25519PrivateKey.generate().public_key()), b"no key", b"", SECRET.encode()]
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    wrong.append(RSA_KEY.private_bytes(encoding, form, serialization.NoEncryption()))
    for text in wrong:
        (tmp_path / "key.pem").write_bytes(text)
        with pytest.raises(SettingError, match="PLAZA_JWT_PUBLIC_KEY"):
            Auth(Settings(jwt_secret=SECRET, api_key=API_KEY, jwt_public_key=tmp_path / "key.pem"))
    with pytest.raises(SettingError, match="cannot be read"):
        Auth(Settings(jwt_secret=SECRET, api_key=API_KEY, jwt_public_key=tmp_path / "none.pem"))
