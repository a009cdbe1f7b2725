"""The guides of `docs/` as HTML with a table of contents, and their sections as plain text."""

import functools
import itertools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from markupsafe import escape

from gateway.configuration.settings import ROOT
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import markdown_it
    from markdown_it.token import Token
else:
    # 3 MB that only the guides need.
    markdown_it = LazyImport("markdown_it")

FOLDER = ROOT / "docs"
PATH = "/docs/guides"
IMAGE_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
SLUG = re.compile(r"[^\w\- ]")
MARKS = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)|<[^>]+>")
SPACES = re.compile(r"\s+")
HEADING = re.compile(r"^(#{1,3}) +(.+?)\s*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
# The address of a gateway on the reader's own computer, which stands for the gateway's address in all examples.
EXAMPLE_ADDRESS = re.compile(r"http://127\.0\.0\.1:4001(?!\d)")
# The end of a part of a name or path: a line may break behind it.
NAME_PART = re.compile(r"(?<=[^\W_])_(?=\w)|(?<=\w)/(?=\w)")
WBR = r"\g<0><wbr>"
# Levels of headings in the table of contents, and how many headings make one worth its room.
CONTENTS = ("h2", "h3")
FEWEST_HEADINGS = 3


class Guide(NamedTuple):
    """A page of `docs/`. `name` is its path without `.md`, `summary` its first paragraph as plain text."""

    name: str
    title: str
    summary: str


class Heading(NamedTuple):
    """An entry of a table of contents. `level` is 2 or 3."""

    level: int
    title: str
    anchor: str


class GuidePage(NamedTuple):
    """A guide, its HTML, and its table of contents, which is empty for a short guide."""

    guide: Guide
    html: str
    contents: tuple[Heading, ...]


class Section(NamedTuple):
    """A part of a guide below one heading, as plain text. `folded` is its lower-case text."""

    guide: Guide
    title: str
    anchor: str
    text: str
    folded: str


@functools.cache
def list_guides() -> dict[str, Guide]:
    """Return all guides by name, in the order of their titles."""
    names = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.md")]
    guides = [_read_guide(name) for name in names if not name.endswith("README") and not name.startswith("changes/")]
    return {guide.name: guide for guide in sorted(guides, key=_title_of)}


def _title_of(guide: Guide) -> tuple[bool, str]:
    return "/" in guide.name, guide.title.lower()


def _read_text(name: str) -> str:
    return Path(FOLDER, f"{name}.md").read_text("utf-8")


def _read_guide(name: str) -> Guide:
    heading, _, rest = _read_text(name).partition("\n")
    paragraph, _, _ = rest.strip().partition("\n\n")
    return Guide(name, heading.removeprefix("# ").strip(), plain_text(paragraph))


def plain_text(markdown: str) -> str:
    """Return Markdown without its marks, with single spaces."""
    return SPACES.sub(" ", MARKS.sub(r"\1", markdown)).strip()


def slug(title: str) -> str:
    """Return the anchor of a heading as GitHub forms it, which links within the guides use."""
    return SLUG.sub("", MARKS.sub(r"\1", title).strip().lower()).replace(" ", "-")


@functools.cache
def render(name: str) -> str:
    """Return a guide of `list_guides` as HTML without its title. Its links are relative to its own address."""
    return _render(name).html


@functools.cache
def _render(name: str) -> GuidePage:
    # The guides are part of this package, so their HTML (anchors) is trusted.
    markdown = markdown_it.MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(_read_text(name))
    headings = []
    _label_cells(tokens)
    for token, following in itertools.pairwise(tokens):
        if token.type == "heading_open":
            anchor = slug(following.content)
            token.attrSet("id", anchor)
            if token.tag in CONTENTS:
                headings.append(Heading(int(token.tag[1]), plain_text(following.content), anchor))
        for child in token.children or ():
            _point(child, name)
    html = str(markdown.renderer.render(tokens[3:], markdown.options, {}))
    if len(headings) < FEWEST_HEADINGS:
        headings.clear()
    return GuidePage(list_guides()[name], html, tuple(headings))


def _label_cells(tokens: "list[Token]") -> None:
    """Give each cell of a table the title of its column, which a telephone shows instead of the table's head. Names in
    cells may only wrap behind their parts."""
    titles: list[str] = []
    column = 0
    for token, following in itertools.pairwise(tokens):
        if token.type == "table_open":
            titles = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            titles.append(plain_text(following.content))
        elif token.type == "td_open":
            token.attrSet("data-label", titles[column])
            column += 1
            for child in following.children or ():
                _allow_breaks(child)


def _allow_breaks(token: "Token") -> None:
    if token.type == "code_inline":
        token.type = "html_inline"
        token.content = f"<code>{NAME_PART.sub(WBR, str(escape(token.content)))}</code>"


def find_page(name: str, address: str) -> GuidePage | None:
    """Return a guide with its HTML, None for an unknown name. Its examples name the gateway's `address` for the reader.
    The first call reads all guides."""
    if name not in list_guides():
        return None
    page = _render(name)
    return page._replace(html=name_address(page.html, str(escape(address))))


def name_address(text: str, address: str) -> str:
    """Return the text with the gateway's address for the reader instead of that of the examples."""
    shown = address.rstrip("/")
    return EXAMPLE_ADDRESS.sub(lambda _: shown, text)


def _point(token: "Token", name: str) -> None:
    """Let a link of the guide `name` lead to the address of its page or file, which has the same relative path without
    `.md`. A link to a file that is not served leads nowhere."""
    if token.type != "link_open":
        return
    parts = urlsplit(str(token.attrGet("href")))
    if parts.scheme or not parts.path:
        return
    served = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts.path)).removesuffix(".md")
    if served in list_guides() or served in list_images():
        token.attrSet("href", parts._replace(path=parts.path.removesuffix(".md")).geturl())
    else:
        del token.attrs["href"]


@functools.cache
def list_images() -> dict[str, Path]:
    """Return the images of all guides by their path in `docs/`."""
    paths = [path for ending in IMAGE_TYPES for path in FOLDER.rglob(f"*{ending}")]
    return {path.relative_to(FOLDER).as_posix(): path for path in paths}


def find_image(name: str) -> bytes | None:
    """Return an image of the guides by its path in `docs/`, None for an unknown path."""
    path = list_images().get(name)
    if path is None:
        return None
    return path.read_bytes()


@functools.cache
def list_sections() -> dict[str, tuple[Section, ...]]:
    """Return the sections of each guide by its name. The first one is that of the guide's title."""
    return {guide.name: tuple(_split(guide)) for guide in list_guides().values()}


def _split(guide: Guide) -> Iterator[Section]:
    text = _read_text(guide.name)
    # A line of a shell script that begins with # is no heading.
    hidden = CODE_BLOCK.sub(_blank, text)
    headings = list(HEADING.finditer(hidden))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        end = len(text)
        if following is not None:
            end = following.start()
        body = plain_text(text[heading.end() : end])
        yield Section(guide, plain_text(heading[2]), slug(heading[2]), body, body.lower())


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
