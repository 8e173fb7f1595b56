"""A Django project, in one file, with Plaza under `/community`. Django knows no mounted applications and no lifespan.

PLAZA_ROOT_PATH=/community uvicorn examples.embedding.django_app:application
"""

from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from plaza import asgi

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only for this example")
django.setup()
django_application = get_asgi_application()


def home(request: HttpRequest) -> HttpResponse:
    """Respond with the project's own page."""
    return HttpResponse("home")


urlpatterns = [path("", home)]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Give requests under `/community`, and the start and stop of the server, to Plaza; the rest to Django."""
    if scope["type"] == "lifespan" or f"{scope['path']}/".startswith("/community/"):
        await asgi(scope, receive, send)
    else:
        await django_application(scope, receive, send)
