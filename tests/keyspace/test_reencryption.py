"""A new data key replaces an old one, and without its key a value is unreadable but harms nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pyotp
import pytest

from plaza import cli
from plaza.accounts.second_factor import SecondFactors
from plaza.app import running
from plaza.core.auth import Actor
from plaza.core.settings import Settings
from plaza.keyspace.reencryption import Reencryption, ReencryptionReport
from plaza.social.accounts import Accounts
from plaza.social.model import Profile, Registration
from plaza.social.users import Users
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import NewWebhook
from tests.servers import Server

NUMBERS = {"ssn": "078-05-1120", "credit_card": "4111 1111 1111 1111"}
ANA, BOB = Actor("ana", "user"), Actor("bob", "user")


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_a_new_data_key_replaces_the_old_one(
    place: Server, redis_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, rate_limits=False)
    async with running(settings) as plaza:
        await plaza.get(Accounts).create(Registration(username="ana", password="correct horse battery", **NUMBERS))
        factors = plaza.get(SecondFactors)
        await factors.confirm(ANA, pyotp.TOTP((await factors.enrol(ANA)).secret).now())
        await plaza.get(Webhooks).create("root", NewWebhook("https://hooks.example/", ["post.created"]))
        await redis_client.hset("user:bob", mapping={"username": "bob", "role": "user", "ssn": "plain"})
    before = await redis_client.hgetall("user:ana")

    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path))
    assert cli.main(["data-key", "new"]) == 0
    assert stat.S_IMODE(settings.data_key_file.stat().st_mode) == 0o600
    new, old = settings.data_keys()
    async with running(settings) as plaza:
        assert (await plaza.get(Users).get(ANA, "ana")).ssn == NUMBERS["ssn"]
        reencryption = plaza.get(Reencryption)
        assert await reencryption.run() == ReencryptionReport(encrypted=4)  # two numbers, a second factor, a webhook
        assert await reencryption.run() == ReencryptionReport()
        assert await redis_client.hget("user:bob", "ssn") == "plain"
        assert await reencryption.run(plain_too=True) == ReencryptionReport(encrypted=1)
        assert await redis_client.hget("user:bob", "ssn") != "plain"
    after = await redis_client.hgetall("user:ana")
    assert all(after[field] not in (before[field], NUMBERS[field]) for field in NUMBERS)

    settings.data_key_file.write_text(new)
    async with running(settings) as plaza:
        assert (await plaza.get(Users).get(ANA, "ana")).credit_card == NUMBERS["credit_card"]
        assert (await plaza.get(Users).get(BOB, "bob")).ssn == "plain"
        assert await plaza.get(Reencryption).run() == ReencryptionReport()

    # The key that encrypted everything is lost.
    settings.data_key_file.write_text(old)
    async with running(settings) as plaza:
        profile = await plaza.get(Users).get(ANA, "ana")
        assert (profile.username, profile.ssn) == ("ana", None)
        changed = await plaza.get(Users).update_profile(ANA, "ana", Profile(ssn="2"))
        assert (changed.ssn, changed.credit_card) == ("2", None)
        assert (await plaza.get(Reencryption).run()).unreadable == 4
