"""The search page without scripts: results by kind, matches marked, help if nothing is found."""

from __future__ import annotations

from plaza.app import Plaza
from plaza.search.query import parse_query
from plaza.search.rebuild import IndexRebuild
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.web.search_html import highlight
from tests.pages.conftest import PageClient


async def test_the_search_page_shows_results_with_marked_matches(ana: PageClient, plaza: Plaza) -> None:
    await ana.submit("/app/posts", content="A <b>red</b> Gärten #garden")
    await plaza.get(IndexRebuild).run()
    html = (await ana.get("/app/search", params={"q": "gart"})).text
    assert "&lt;b&gt;red&lt;/b&gt; <mark>Gärten</mark>" in html
    assert 'href="/app/search?q=gart&amp;type=posts"' in html
    assert 'name="q" value="gart"' in html, "the box keeps the query"
    only = (await ana.get("/app/search", params={"q": "garten", "type": "posts"})).text
    assert "<mark>Gärten</mark>" in only


async def test_items_are_found_with_price_and_stock(ana: PageClient, plaza: Plaza) -> None:
    for name, qty in (("Red lamp", 3), ("Blue lamp", 0)):
        await plaza.get(Items).create(NewItem(name, "Warm.", "12.00", qty), None)
    await plaza.get(IndexRebuild).run()
    html = (await ana.get("/app/search", params={"q": "lamp"})).text
    assert "<small>€12.00 · 3 in stock</small>" in html
    assert "<small>€12.00 · sold out</small>" in html


async def test_an_empty_result_helps(ana: PageClient, plaza: Plaza) -> None:
    await plaza.get(IndexRebuild).run()
    html = (await ana.get("/app/search", params={"q": "anna"})).text
    assert 'Did you mean <a href="/app/search?q=ana">' in html
    assert "Nothing found." in html
    tab = (await ana.get("/app/search", params={"q": "ana", "type": "items"})).text
    assert '<a href="/app/search?q=ana">Search everything</a>' in tab
    assert "from:name" in (await ana.get("/app/search")).text
    assert (await ana.get("/app/search", params={"q": "x" * 500})).status_code == 200


async def test_suggestions_are_those_of_the_signed_in_user(ana: PageClient, guest: PageClient, plaza: Plaza) -> None:
    await guest.sign_up("benno")
    await plaza.get(IndexRebuild).run()
    path = "/app/search/suggest?q=ben"
    assert "benno" in (await ana.get(path)).text
    assert "@<mark>benno</mark>" in (await ana.get("/app/search?q=ben")).text
    await ana.submit("/app/people/benno/block", on="1")
    assert "benno" not in (await ana.get(path)).text


def test_matches_are_marked_and_texts_are_cut_around_them() -> None:
    ete, hindi = parse_query("ete"), parse_query("हिन्दी")
    assert highlight("<i> Été & eté", ete, 100) == "&lt;i&gt; <mark>Été</mark> &amp; <mark>eté</mark>"
    assert highlight("e\u0301te\u0301_x", ete, 100) == "<mark>e\u0301te\u0301</mark>_x", "accents of their own"
    assert highlight("東京タワー", parse_query("京タ"), 100) == "東<mark>京タ</mark>ワー"
    assert highlight("यह हिन्दी है", hindi, 100) == "यह <mark>हिन्दी</mark> है", "vowel signs are parts of a word"
    assert highlight("a garden, an apple", parse_query('a "app"'), 100) == "<mark>a</mark> garden, an apple"
    assert highlight("Ana東京", parse_query("an 京"), 100) == "<mark>Ana</mark>東<mark>京</mark>", "two scripts"
    assert highlight("公园,花园的公园", parse_query("公园"), 100) == "<mark>公园</mark>,花园的<mark>公园</mark>"
    assert highlight("สวัสดีชาวโลก", parse_query("ชาวโลก"), 100) == "สวัสดี<mark>ชาวโลก</mark>"
    assert highlight("ดื่มน้ำ", parse_query("น้ำ"), 100) == "ดื่ม<mark>น้ำ</mark>", "one character that is two when folded"
    assert highlight("哈哈哈哈!", parse_query("哈哈哈"), 100) == "<mark>哈哈哈哈</mark>!", "matches overlap"
    long = highlight("word " * 100 + "needle " + "word " * 100, parse_query("needle"), 100)
    assert "<mark>needle</mark>" in long
    assert len(long) < 150
    assert long.startswith("…")
    assert long.endswith("…")
    assert highlight("", parse_query("x"), 10) == ""
    assert "<mark>" not in highlight("word " * 2_000 + "needle", parse_query("needle"), 100), "longer than users write"


def test_a_tag_is_marked_with_its_sign_and_no_other_word() -> None:
    query = parse_query("#Été_23 lake")
    marked = highlight("ete_23 #été_23 #été lake", query, 100)
    assert marked == "ete_23 <mark>#été_23</mark> #été <mark>lake</mark>"
