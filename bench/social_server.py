"""Social alone, with Plaza's own protocol: `python -m bench.social_server URL SECRET PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvicorn
import uvloop

from plaza.core import paging
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import Core, build_domains
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol
from plaza.core.idempotency import Idempotency
from plaza.core.rate_limits import Limiter
from plaza.core.revocations import Revocations
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import connect
from plaza.social.domain import DOMAIN


async def main(url: str, secret: str, port: int) -> None:
    settings = Settings(jwt_secret=secret, api_key="k" * 32, data_key="d" * 32, rate_limits=False)
    valkey = await connect(url)
    functions = Functions(valkey, [DOMAIN.library, paging.LIBRARY])
    await functions.load()
    revocations = Revocations(valkey)
    await revocations.start()
    auth = Auth(settings, revocations)
    sql = cast(Sql, None)  # social has no tables
    core = Core(settings, valkey, functions, sql, auth, Limiter(functions, on=False), Clock())
    parts = build_domains(core, [DOMAIN])
    app = make_app(
        list(DOMAIN.routes),
        {type(service): service for part in parts for service in part.services},
        auth=auth,
        settings=settings,
        idempotency=Idempotency(valkey),
    )
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, http=GuardedHttpProtocol, lifespan="off", access_log=False,
        log_level="warning", proxy_headers=False, server_header=False,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
