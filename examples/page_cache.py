"""A FastAPI application with cached pages. It uses only the page cache of Plaza, and a Valkey.

pip install plaza fastapi uvicorn
VALKEY=valkey://localhost:6379 uvicorn examples.page_cache:app

curl -i localhost:8000/items/7              # Cache-Status: plaza; fwd=uri-miss; stored
curl -i localhost:8000/items/7              # Cache-Status: plaza; hit; ttl=300
curl -X POST localhost:8000/items/7/sold    # the next reader gets a new page
"""

import os

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from plaza.caching import PageCacheMiddleware

stock = {7: 3}
pages = FastAPI()


@pages.get("/items/{id}", response_class=HTMLResponse)
async def item(id: int) -> HTMLResponse:
    return HTMLResponse(f"<h1>{stock.get(id, 0)} left</h1>", headers={"cache-tag": f"item-{id}"})


@pages.post("/items/{id}/sold")
async def sold(id: int) -> dict[str, int]:
    stock[id] -= 1
    return {"pages_dropped": await app.purge(f"item-{id}")}


app = PageCacheMiddleware(pages, store=os.environ.get("VALKEY", "valkey://localhost:6379"))
