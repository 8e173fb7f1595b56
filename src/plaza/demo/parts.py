"""Builds what loads the demo, simulates its users and offers its accounts, from the services of all domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaza.core.domain import Core
from plaza.demo.lifecycle import DemoParts
from plaza.demo.loader import DemoLoader
from plaza.demo.loaders.pictures import PicturesLoader
from plaza.demo.offered_accounts import OfferedAccounts
from plaza.demo.simulation import DemoSimulation
from plaza.media.pictures import PictureClaims
from plaza.media.uploads import Uploads
from plaza.sessions.service import Sessions
from plaza.shop.items import Items
from plaza.social.avatars import Avatars
from plaza.social.inbound_sync import InboundSync
from plaza.social.password_changes import PasswordChanges
from plaza.social.posts import Posts


def build_parts(core: Core, services: Mapping[type, Any]) -> DemoParts:
    """Build the parts of the demo."""
    uploads, items = services[Uploads], services[Items]
    pictures = PicturesLoader(uploads, services[PictureClaims], services[Posts], services[Avatars], items)
    loader = DemoLoader(core, services[InboundSync], items, pictures)
    passwords, sessions = services[PasswordChanges], services[Sessions]
    offered = OfferedAccounts(core.valkey, core.auth, passwords, sessions, core.settings.data_dir)
    return DemoParts(loader, DemoSimulation(core, services), offered)
