"""A real OpenID provider (npm's `oidc-provider`) on loopback, and a browser's way through its pages."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx

FOLDER = Path(__file__).parent / "oidc"
CLIENT_ID, CLIENT_SECRET = "plaza", "a secret of the client"


@dataclass(frozen=True)
class OidcProvider:
    issuer: str

    async def sign_in(self, browser: httpx.AsyncClient, url: str, login: str) -> str:
        """Sign in at the provider's pages and return the address that it redirects to: the callback."""
        response = await browser.get(url)
        for _ in range(10):
            location: str = response.headers.get("location", "")
            if location and not urljoin(str(response.url), location).startswith(self.issuer):
                return location
            if location:
                response = await browser.get(urljoin(str(response.url), location))
                continue
            action = re.search(r'action="([^"]+)"', response.text)
            assert action is not None, response.text
            prompt = "login" if 'name="login"' in response.text else "consent"
            form = {"prompt": prompt} | ({"login": login, "password": "any"} if prompt == "login" else {})
            response = await browser.post(urljoin(str(response.url), action[1]), data=form)
        raise AssertionError("the provider does not come to an end")


@contextlib.contextmanager
def oidc_provider(redirect_uri: str) -> Iterator[OidcProvider]:
    """Run the provider until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = ["node", "provider.mjs", str(port), CLIENT_ID, CLIENT_SECRET, redirect_uri]
    with subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == "ready":
                    break
            yield OidcProvider(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
