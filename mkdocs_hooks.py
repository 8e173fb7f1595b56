"""Hooks of the documentation site: add the pages of the repository's root, and make links between the two work.

The sources are readable as plain files, so `docs/index.md` links to `../ARCHITECTURE.md` and that page to `docs/…`. In
the site both are in one folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent
ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
CDN_SCRIPT = "https://unpkg.com/iframe-worker/shim"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and the decisions to the navigation."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    decisions = sorted(file.src_uri for file in files if file.src_uri.startswith("decisions/"))
    decisions.sort(key=lambda uri: not uri.endswith("index.md"))
    assert config.nav is not None
    config.nav[-1] = {"Decisions": decisions}
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between the root and `docs/`. Links to source files become plain text."""
    if page.file.src_uri in ROOT_PAGES:
        without_source_links = re.sub(r"\[([^\]]+)\]\((?!docs/|https?:|#|[A-Z]+\.md)[^)]+\)", r"\1", markdown)
        return without_source_links.replace("](docs/", "](")
    root_page = "|".join(map(re.escape, ROOT_PAGES))
    return re.sub(rf"\]\((?:\.\./)+({root_page})", lambda m: f"]({_up(page)}{m[1]}", markdown)


def _up(page: Page) -> str:
    return "../" * page.file.src_uri.count("/")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Use our own script for search from `file://` instead of the theme's, which comes from a CDN."""
    return output.replace(CDN_SCRIPT, f"{_up(page)}assets/iframe-worker.js")


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages without a source, such as `404.html`."""
    return output.replace(CDN_SCRIPT, "assets/iframe-worker.js")
