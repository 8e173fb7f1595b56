"""A tour of Plaza with the generated Python client: `python python_tour.py URL API_KEY`.

Prints the names of the operations that it called, one a line.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from plaza_client import AuthenticatedClient, Client
from plaza_client import models as m
from plaza_client.api.accounts import get_current_user, login, refresh_tokens, register
from plaza_client.api.articles import (
    create_article,
    get_article,
    list_articles,
    list_group_articles,
    list_groups,
    vote_on_article,
)
from plaza_client.api.challenges import (
    create_challenge,
    create_challenge_post,
    join_challenge,
    list_challenge_posts,
    track_day,
)
from plaza_client.api.feeds import list_explore_feed, list_following_feed, list_hashtag_feed, list_user_posts
from plaza_client.api.live import count_active_viewers, declare_event, get_event_overview, send_heartbeat
from plaza_client.api.posts import (
    bookmark_post,
    create_comment,
    create_post,
    delete_post,
    edit_post,
    get_post,
    like_post,
    list_comments,
    list_post_likes,
    unlike_post,
)
from plaza_client.api.proxy import run_commands, run_pipeline
from plaza_client.api.shop import check_out, create_item, get_item, list_items, list_orders, set_cart_item
from plaza_client.api.sync import sync_users
from plaza_client.api.system import get_health, ping
from plaza_client.api.users import (
    block_user,
    export_user_data,
    follow_user,
    get_user,
    list_followers,
    set_user_role,
    update_user,
)
from plaza_client.api.webhooks import create_webhook, list_webhooks

PASSWORD = "correct horse battery"


def call(operation: ModuleType, *arguments: Any, **options: Any) -> Any:
    """The parsed response of an operation. An error or a response without a type ends the tour."""
    response = operation.sync_detailed(*arguments, **options)
    name = operation.__name__.rsplit(".", 1)[1]
    assert response.status_code < 300, f"{name}: {response.status_code} {response.content!r}"
    assert response.parsed is not None, f"{name}: the response was not parsed"
    print(name)
    return response.parsed


def see_accounts(url: str) -> AuthenticatedClient:
    """Register and sign in; returns the client of a user."""
    anyone = Client(base_url=url)
    assert call(get_health, client=anyone).status == "ok"
    assert call(ping, client=anyone).message == "pong"
    assert call(register, client=anyone, body=m.Registration(username="ana", password=PASSWORD)).user.id == "ana"
    signed_in = call(login, client=anyone, body=m.PasswordLogin(username="ana", password=PASSWORD))
    renewed = call(refresh_tokens, client=anyone, body=m.RefreshRequest(refresh_token=signed_in.refresh_token))
    ana = AuthenticatedClient(base_url=url, token=renewed.access_token)
    assert call(get_current_user, client=ana).username == "ana"
    return ana


def see_posts(ana: AuthenticatedClient) -> None:
    post = call(create_post, client=ana, body=m.NewPost(content="Sunset #travel"), idempotency_key="first-post")
    again = call(create_post, client=ana, body=m.NewPost(content="Sunset #travel"), idempotency_key="first-post")
    assert again.id == post.id
    assert call(edit_post, post.id, client=ana, body=m.PostEdit(content="Sunrise #travel")).edited_at
    assert call(like_post, post.id, client=ana).likes_count == 1
    assert [user.username for user in call(list_post_likes, post.id, client=ana).users] == ["ana"]
    assert call(unlike_post, post.id, client=ana).likes_count == 0
    assert call(bookmark_post, post.id, client=ana).is_bookmarked
    call(create_comment, post.id, client=ana, body=m.NewComment(content="Where was this?"))
    assert len(call(list_comments, post.id, client=ana).comments) == 1
    assert call(get_post, post.id, client=ana).hashtags == ["travel"]
    for feed in (list_explore_feed, list_following_feed):
        assert call(feed, client=ana, limit=5).pagination.limit == 5
    assert call(list_hashtag_feed, "travel", client=ana).posts[0].post.id == post.id
    assert call(list_user_posts, "ana", client=ana).posts[0].user.username == "ana"
    assert call(delete_post, post.id, client=ana).deleted


def see_users(ana: AuthenticatedClient, admin: AuthenticatedClient) -> None:
    records = [m.UserRecord(username=name, bio="Gardener.") for name in ("ben", "cleo")]
    assert [result.status for result in call(sync_users, client=admin, body=records).results] == ["created", "created"]
    assert call(get_user, "ben", client=ana).bio == "Gardener."
    assert call(update_user, "me", client=ana, body=m.Profile(bio="Painter.", avatar=None)).bio == "Painter."
    assert call(follow_user, "ben", client=ana).on
    assert [user.username for user in call(list_followers, "ben", client=ana).users] == ["ana"]
    assert call(block_user, "cleo", client=ana).kind == "block"
    assert call(set_user_role, "ben", client=admin, body=m.NewRole(role="model")).role == "model"
    assert "social" in call(export_user_data, client=ana).additional_properties


def see_articles(ana: AuthenticatedClient) -> None:
    body = m.NewArticle(title="Sorted sets", link="https://valkey.io/topics/sorted-sets/", groups=["python"])
    article = call(create_article, client=ana, body=body)
    assert call(vote_on_article, article.id, client=ana, body=m.NewVote(direction="down")).votes == -1
    assert call(get_article, article.id, client=ana).vote == "down"
    assert call(list_articles, client=ana, order="time").articles[0].id == article.id
    assert call(list_groups, client=ana).groups[0].name == "python"
    assert call(list_group_articles, "python", client=ana).articles[0].id == article.id


def see_challenges(ana: AuthenticatedClient) -> None:
    new = m.NewChallenge(title="Thirty runs", category=1, is_public=True, duration=30)
    challenge = call(create_challenge, client=ana, body=new)
    assert call(join_challenge, challenge.id, client=ana).member
    call(track_day, challenge.id, client=ana, body=m.NewTracking())
    call(create_challenge_post, challenge.id, client=ana, body=m.NewChallengePost(text="Five kilometres."))
    assert not call(list_challenge_posts, challenge.id, client=ana).posts[0].is_break


def see_live(ana: AuthenticatedClient, admin: AuthenticatedClient) -> None:
    call(declare_event, "launch", client=admin, body=m.EventDeclaration(title="Launch"))
    assert call(send_heartbeat, "launch", client=ana, body=m.Heartbeat(location="stage")).alive
    assert call(count_active_viewers, "launch", client=admin).count == 1
    call(get_event_overview, "launch", client=admin)


def see_shop(url: str, admin: AuthenticatedClient) -> None:
    new = m.NewItem(name="Lamp", description="Warm light.", price="19.90", qty=3)
    item = call(create_item, client=admin, body=new)
    guest = Client(base_url=url)  # its cookies are the session
    assert call(list_items, client=guest).items[0].price == "19.90"
    assert call(get_item, item.id, client=guest).qty == 3
    assert call(set_cart_item, item.id, client=guest, body=m.NewQuantity(qty=2)).total == "39.80"
    assert call(check_out, client=guest).total == "39.80"
    assert len(call(list_orders, client=guest).orders) == 1


def see_other_services(ana: AuthenticatedClient, admin: AuthenticatedClient) -> None:
    hook = call(create_webhook, client=admin, body=m.NewWebhook(url="https://example.org/hook", types=["post.*"]))
    assert [webhook.id for webhook in call(list_webhooks, client=admin).webhooks] == [hook.id]
    assert call(run_commands, client=ana, body=["HGET", "user:me", "bio"]).result == "Painter."
    results = call(run_pipeline, client=ana, body=[["HGET", "user:me", "bio"], ["FLUSHALL"]])
    assert results[0].result == "Painter."
    assert results[1].error


def main(url: str, api_key: str) -> None:
    admin = AuthenticatedClient(base_url=url, token=api_key, prefix="", auth_header_name="X-API-Key")
    ana = see_accounts(url)
    see_posts(ana)
    see_users(ana, admin)
    see_articles(ana)
    see_challenges(ana)
    see_live(ana, admin)
    see_shop(url, admin)
    see_other_services(ana, admin)


if __name__ == "__main__":
    main(*sys.argv[1:])
