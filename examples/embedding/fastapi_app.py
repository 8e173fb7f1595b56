"""A FastAPI application with Plaza under `/community`. Its own handlers use Plaza's services.

uvicorn examples.embedding.fastapi_app:app
"""

from fastapi import FastAPI

from plaza import asgi
from plaza.core.auth import Actor
from plaza.social.model import NewPost
from plaza.social.posts import Posts

app = FastAPI(lifespan=asgi.lifespan)


@app.post("/releases/{version}")
async def announce(version: str) -> dict[str, str]:
    """Write a post about a release."""
    post = await asgi.plaza.get(Posts).create(Actor("ana", "user"), NewPost(f"Version {version} is out. #release"))
    return {"post": post.id}


app.mount("/community", asgi)
