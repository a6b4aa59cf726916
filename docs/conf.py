"""The site: ``make docs`` puts it into build/docs; every page is also read as it is, on GitHub.

The order of the pages is that of the lists in index.md; a page that is in none of them is a warning, and a warning ends
the build. Nothing of the site is fetched from another host when it is read.
"""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Penstock"
author = "the authors of Penstock"
release = installed_version("penstock")
extensions = ["myst_parser"]

html_theme = "furo"
html_title = f"Penstock {release}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

myst_heading_anchors = 4
#: Words such as c-7.slice or node.example are no addresses.
myst_linkify_fuzzy_links = False

_SECTION = re.compile(r"^## (?P<caption>.+)\n(?P<body>(?:(?!^## ).*\n?)*)", re.MULTILINE)
_PAGE = re.compile(r"^- \[[^\]]+\]\((?P<page>[^)#:]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_lexer("hex", TextLexer)
    app.connect("source-read", _order_pages)


def _order_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """The lists of index.md, as people read them, are the site's tables of contents, too."""
    # Pages that are in the repository and not in the site: their names stay, without a link.
    up = docname.count("/") + 1
    source[0] = re.sub(rf"\[([^\]]+)\]\((?:\.\./){{{up},}}[^)#]+\.md(?:#[^)]*)?\)", r"\1", source[0])
    if docname != "index":
        return
    for section in _SECTION.finditer(source[0]):
        pages = _PAGE.findall(section["body"])
        if pages:
            source[0] += _toctree(section["caption"], pages)


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])
