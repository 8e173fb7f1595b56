"""Mentions in pages: existing users are linked, renamed ones by their new name."""

from __future__ import annotations

from plaza.app import Plaza
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import USERS_RENAMED
from tests.pages.conftest import PageClient
from tests.social.conftest import ADMIN


async def test_only_existing_users_are_linked_and_a_renamed_user_by_the_new_name(
    plaza: Plaza, ana: PageClient, guest: PageClient, url: str
) -> None:
    async with PageClient(url) as ben:
        await ben.sign_up("ben")
    sent = await ana.submit("/app/posts", content="Hello @ben, @missing and @ana.", next="")
    post = sent.headers["location"]
    await ana.submit(f"{post}/comments", page=post, content="@ben?")
    for page in (post, "/app", "/app/people/ana"):
        html = (await guest.get(page)).text
        assert '<a class="mention" href="/app/people/ben">@ben</a>, @missing and' in html
    assert html.count("@ben") == 1
    await plaza.get(AccountRenaming).rename("ben", "benno")
    html = (await guest.get(post)).text
    assert html.count('<a class="mention" href="/app/people/benno">@ben</a>') == 2
    moved = await guest.get("/app/people/ben", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "/app/people/benno")
    await plaza.get(AccountRenaming).rename("benno", "bo")
    assert (await guest.get(post)).text.count('href="/app/people/bo">@ben</a>') == 2
    assert await plaza.core.valkey.call("HGETALL", USERS_RENAMED()) == {"ben": "bo", "benno": "bo"}
    await plaza.get(AccountDeletion).delete(ADMIN, "bo")
    assert 'class="mention" href="/app/people/b' not in (await guest.get(post)).text
    assert not await plaza.core.valkey.call("EXISTS", USERS_RENAMED())


async def test_a_name_that_is_used_again_leads_to_its_new_user(
    plaza: Plaza, ana: PageClient, guest: PageClient, url: str
) -> None:
    await ana.submit("/app/posts", content="I am @ana.", next="")
    await plaza.get(AccountRenaming).rename("ana", "anna")
    assert 'href="/app/people/anna">@ana</a>' in (await guest.get("/app")).text
    async with PageClient(url) as other:
        await other.sign_up("ana")
    assert 'href="/app/people/ana">@ana</a>' in (await guest.get("/app")).text
    await plaza.get(AccountRenaming).rename("anna", "ann")
    assert 'href="/app/people/ana">@ana</a>' in (await guest.get("/app")).text
