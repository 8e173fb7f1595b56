"""Identity and bank numbers of profiles are encrypted in Valkey, and readable for their user only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.core.auth import API, Actor
from plaza.social import keys as k
from plaza.social.account_renaming import AccountRenaming
from plaza.social.jsonl_import import JsonlImporter
from plaza.social.model import Profile
from tests.social.conftest import Social

NUMBERS = {"ssn": "078-05-1120", "credit_card": "4111 1111 1111 1111", "bank_account": "DE89 3704 0044 0532 0130 00"}
PASSWORD = "correct horse battery"


async def assert_encrypted(redis_client: Any, name: str) -> dict[str, str]:
    """Check that a plain client sees no number in a profile. Returns the profile."""
    profile: dict[str, str] = await redis_client.hgetall(k.USER(name))
    assert all(profile[field].startswith("plaza-enc-v1:") for field in NUMBERS)
    assert not any(number in str(profile) for number in NUMBERS.values())
    return profile


async def test_numbers_are_encrypted_however_they_are_written(
    social: Social, http: httpx.AsyncClient, redis_client: Any, tmp_path: Path
) -> None:
    registration = {"username": "ana", "password": PASSWORD, **NUMBERS}
    registered = (await http.post("/auth/register", json=registration, headers={"idempotency-key": "k1"})).json()
    assert NUMBERS.items() <= registered["user"].items()
    await assert_encrypted(redis_client, "ana")
    ana, bob, eve = (social.token(Actor(name, "user")) for name in ("ana", "bob", "eve"))
    repeated = await http.post("/auth/register", json=registration, headers={"idempotency-key": "k1"})
    assert repeated.headers["idempotency-replayed"] == "true"
    assert NUMBERS.items() <= (await http.get("/whoami", headers=ana)).json().items()

    records = [{"username": "bob", **NUMBERS}]
    for status in ("created", "unchanged"):
        synced = await http.post("/sync/users", json=records, headers=social.token(API))
        assert [result["status"] for result in synced.json()["results"]] == [status]
    await assert_encrypted(redis_client, "bob")
    file = tmp_path / "users.jsonl"
    file.write_text(json.dumps({"type": "user", "username": "eve", **NUMBERS}))
    await JsonlImporter(social.valkey, [social.sync], lambda line: pytest.fail(str(line))).run(file)
    await assert_encrypted(redis_client, "eve")
    for headers in (ana, bob, eve):
        assert NUMBERS.items() <= (await http.get("/users/me", headers=headers)).json().items()
    changed = (await http.patch("/users/me", json={"ssn": "1", "bank_account": None}, headers=ana)).json()
    assert (changed["ssn"], "bank_account" in changed) == ("1", False)
    assert await redis_client.hget(k.USER("ana"), "ssn") not in ("1", None)
    for headers in (bob, social.token(Actor("root", "admin")), social.token(API), {}):
        assert "ssn" not in (await http.get("/users/ana", headers=headers)).json()


async def test_numbers_follow_their_user_through_export_renaming_and_deletion(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    ana = await social.create_user("ana")
    await social.users.update_profile(ana, "ana", Profile(**NUMBERS))
    before = await assert_encrypted(redis_client, "ana")
    exported = (await http.get("/users/me/export", headers=social.token(ana))).json()
    assert NUMBERS.items() <= exported["social"]["profile"].items()

    renaming: AccountRenaming = social.parts[AccountRenaming]
    await renaming.rename("ana", "anna")
    anna = Actor("anna", "user")
    renamed = await http.get("/users/me", headers=social.token(anna))
    assert NUMBERS.items() <= renamed.json().items()
    after = await assert_encrypted(redis_client, "anna")
    assert not {after[field] for field in NUMBERS} & {before[field] for field in NUMBERS}

    # A value that was copied from another profile is bound to that profile: it says nothing here.
    thief = await social.create_user("thief", ssn=after["ssn"], credit_card=after["ssn"])
    stolen = (await http.get("/users/me", headers=social.token(thief))).json()
    assert not {"ssn", "credit_card"} & stolen.keys()
    await social.deletion.delete(anna, "anna")
    assert await redis_client.exists(k.USER("anna")) == 0


async def test_numbers_that_another_service_wrote_in_plain_text_are_shown_and_kept(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    ana = await social.create_user("ana", "user", **NUMBERS)
    shown = (await http.get("/users/me", headers=social.token(ana))).json()
    assert NUMBERS.items() <= shown.items()
    await social.users.update_profile(ana, "ana", Profile(bio="tea", ssn="1"))
    kept = await redis_client.hgetall(k.USER("ana"))
    assert kept["bank_account"] == NUMBERS["bank_account"]
    assert kept["ssn"].startswith("plaza-enc-v1:")
