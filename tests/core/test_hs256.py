"""Our HS256 and PyJWT's accept the same tokens, apart from three oddities that ours refuses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import string
from typing import Any

import jwt
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plaza.core.errors import SettingError
from plaza.core.hs256 import Hs256, InvalidToken
from plaza.core.tokens import TOKEN_TYPES, Tokens
from tests.core.test_auth import RSA_KEY, pem

SECRET = b"a secret of at least thirty-two bytes"
OURS = Hs256(SECRET, typ="JWT", accepts=TOKEN_TYPES)
THEIRS = jwt.PyJWS()
BASE64URL = string.ascii_letters + string.digits + "-_"


def segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header: str, payload: str, key: bytes = SECRET, digest: Any = hashlib.sha256) -> str:
    """A token of any two segments with a signature that fits them."""
    text = f"{header}.{payload}"
    return f"{text}.{segment(hmac.digest(key, text.encode(), digest))}"


def ours(token: str) -> bytes | None:
    try:
        return OURS.verify(token)
    except InvalidToken:
        return None


def theirs(token: str) -> bytes | None:
    try:
        payload: bytes = THEIRS.decode(token, SECRET, algorithms=["HS256"])
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return payload


def is_odd(token: str) -> bool:
    """Whether PyJWT may accept a token that ours refuses: padding, extensions, another type, JSON beyond the RFC."""
    if "=" in token:
        return True
    header = jwt.get_unverified_header(token)
    typ = header.get("typ")
    plain = typ is None or (isinstance(typ, str) and typ.lower().removeprefix("application/") in ("jwt", "at+jwt"))
    return not plain or "crit" in header or "b64" in header


def check(token: str) -> None:
    """Both give the same payload or refuse; ours also refuses what is odd."""
    own, other = ours(token), theirs(token)
    if own is not None:
        assert own == other
    elif other is not None:
        assert is_odd(token)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from(["HS256", "HS256", "HS256", "hs256", "HS384", "RS256", "none", "", None, 1, ["HS256"]]),
        "typ": st.sampled_from(["JWT", "jwt", "at+jwt", "application/JWT", "viewer+jwt", "", None, 1]),
        "kid": st.sampled_from(["1", "", None, 1]),
        "crit": st.sampled_from([[], ["b64"], ["exp"], "b64", None]),
        "b64": st.sampled_from([True, False, None, 0]),
        "more": json_values,
    },
)


@given(st.binary(max_size=60))
def test_what_one_signs_the_other_accepts(payload: bytes) -> None:
    token = OURS.sign(payload)
    assert token == THEIRS.encode(payload, SECRET, algorithm="HS256")
    assert ours(token) == theirs(token) == payload


@given(headers, st.binary(max_size=30))
@example({"alg": "HS256", "crit": ["b64"], "b64": True}, b"{}")
@example({"alg": "HS256", "b64": False}, b"")
def test_both_judge_any_header_alike(header: dict[str, Any], payload: bytes) -> None:
    check(signed(segment(msgspec.json.encode(header)), segment(payload)))


@given(st.binary(max_size=30), st.binary(max_size=30))
@example(b'{"alg":"none","alg":"HS256"}', b"")
@example(b'{"alg":"HS256","alg":"none"}', b"")
@example(b'{"alg":"HS256"} ', b"")
@example(b'["alg"]', b"")
@example(b"[" * 5000, b"")
def test_both_judge_any_bytes_as_header_alike(header: bytes, payload: bytes) -> None:
    check(signed(segment(header), segment(payload)))


@given(st.text(BASE64URL + "=+/. \n", max_size=12), st.text(BASE64URL + "=+/. \n", max_size=12))
@example("", "eyJ9")  # bits that mean nothing
@example("", "e30=")
def test_both_judge_any_segment_alike(more: str, payload: str) -> None:
    header = segment(b'{"alg":"HS256","typ":"JWT"}')
    check(signed(header, payload))
    check(signed(header + more, payload))


@given(st.data())
def test_no_changed_token_is_accepted(data: st.DataObject) -> None:
    token = OURS.sign(b'{"username":"ana","exp":1}')
    at = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(at, min(len(token), at + 3)))
    changed = token[:at] + data.draw(st.text(BASE64URL + "=+/.é\ud800 ", max_size=3)) + token[end:]
    if changed != token:
        assert ours(changed) is None
        check(changed)


@pytest.mark.parametrize("digest", [hashlib.sha384, hashlib.sha512, hashlib.sha1])
def test_only_the_named_hash_counts(digest: Any) -> None:
    token = signed(segment(b'{"alg":"HS256"}'), "e30", digest=digest)
    assert ours(token) is None
    assert theirs(token) is None


def test_a_type_can_be_required() -> None:
    viewers = Hs256(SECRET, typ="viewer+jwt", accepts=["viewer+jwt"])
    assert viewers.verify(viewers.sign(b"{}")) == b"{}"
    with pytest.raises(InvalidToken):
        viewers.verify(OURS.sign(b"{}"))
    assert ours(viewers.sign(b"{}")) is None


def test_a_public_key_is_refused_as_a_secret() -> None:
    with pytest.raises(SettingError, match="PLAZA_JWT_SECRET"):
        Tokens(pem(RSA_KEY.public_key()).decode())
