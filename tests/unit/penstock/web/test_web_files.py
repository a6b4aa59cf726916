"""The page's files: all there, nothing inline, nothing from elsewhere, and the headers that hold browsers to it."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock.web import pages

FILES = Path(pages.__file__).with_name("static")


@pytest.mark.parametrize("page", ["node.html", "cluster.html"])
async def test_a_page_and_all_that_it_names_are_served_with_strict_headers(page: str) -> None:
    app = web.Application()
    app.on_response_prepare.append(pages.add_headers)
    app.add_routes([web.get("/", pages.handler(page)), pages.STATIC])
    async with TestServer(app) as server, aiohttp.ClientSession(str(server.make_url("/"))) as client:
        todo, seen = ["/"], set()
        while todo:
            path = todo.pop()
            seen.add(path)
            async with client.get(path) as response:
                assert response.status == 200, path
                assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cache-Control"] == "no-cache"
                text = await response.text()
            todo += set(re.findall(r"/static/[a-z.]+", text)) - seen - set(todo)
        assert {"/static/penstock.css", "/static/live.js", "/static/icon.svg"} <= seen
        for wrong in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/"):
            async with client.get(wrong) as response:
                assert response.status in {403, 404}, wrong


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert set(re.findall(r"https?://[^\s\"'>]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
