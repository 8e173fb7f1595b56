"""The guide's examples run in their order and return what the guide shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.routes import route
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.auth import Auth
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.idempotency import Idempotency
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from tests.challenges.conftest import ChallengeServices, assemble
from tests.http_servers import client_of

GUIDE = Path(__file__).parents[2] / "docs" / "challenges.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+)(?: as (\w+))?\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)
SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
AUTH = Auth(SETTINGS)


async def test_the_guides_examples_return_what_it_shows(services: ChallengeServices, valkey: Valkey) -> None:
    services = assemble(services.functions, services.sql, services.clock, max_post_age=30)
    dependencies = {
        Challenges: services.challenges,
        ChallengePosts: services.posts,
        ChallengeTracking: services.tracking,
        ChallengeReminders: ChallengeReminders(services.projections, services.tracking),
        Leaderboards: services.leaderboards,
        ChallengeComments: ChallengeComments(services.projections),
        ChallengeInvitations: ChallengeInvitations(services.projections),
        ChallengeDeletion: ChallengeDeletion(services.projections),
        DailyJob: services.daily_job,
        Recommender: services.recommender,
    }
    app = make_app(
        [route], dependencies, auth=AUTH, settings=SETTINGS, options=AppOptions(idempotency=Idempotency(valkey))
    )
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http")
    async with client_of(app) as http:
        for method, path, username, body, expected in examples:
            token = AUTH.issue(username or "ana", "admin" if username == "root" else "user")
            headers = {"authorization": f"Bearer {token}"}
            answer = await http.request(method, path, content=body, headers=headers)
            assert answer.json() == json.loads(expected), (method, path)
