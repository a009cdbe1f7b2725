"""The guides of `docs/` as HTML, and the search in them."""

import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

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
CELLS = re.compile(r"[|●·]|-{3,}")  # borders of tables, and marks that stand for yes and no in them
SPACES = re.compile(r"\s+")
HEADING = re.compile(r"^(#{1,3}) +(.+?)\s*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
MAX_QUERY_LENGTH = 100
MAX_WORDS = 8
MAX_RESULTS = 30
# A word in a heading counts as often as this many in the text.
HEADING_WEIGHT = 10
EXCERPT = 160


class Guide(NamedTuple):
    """A page of `docs/`. `name` is its path without `.md`, `summary` its first paragraph as plain text."""

    name: str
    title: str
    summary: str


class GuidePage(NamedTuple):
    """A guide and its HTML."""

    guide: Guide
    html: str


class Section(NamedTuple):
    """A part of a guide below one heading, as plain text. `folded` is its lower-case text."""

    guide: Guide
    title: str
    anchor: str
    text: str
    folded: str


class Hit(NamedTuple):
    """A section that contains every word of a search, with the text around the first one."""

    section: Section
    excerpt: str


@functools.cache
def list_guides() -> dict[str, Guide]:
    """Return all guides by name, in the order of their titles."""
    names = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.md")]
    guides = [_read_guide(name) for name in names if not name.endswith("README")]
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
    # The guides are part of this package, so their HTML (anchors) is trusted.
    markdown = markdown_it.MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(_read_text(name))
    for token, following in zip(tokens, tokens[1:], strict=False):
        if token.type == "heading_open":
            token.attrSet("id", slug(following.content))
        for child in token.children or ():
            _point(child, name)
    return str(markdown.renderer.render(tokens[3:], markdown.options, {}))


def find_page(name: str) -> GuidePage | None:
    """Return a guide with its HTML, None for an unknown name. The first call reads all guides."""
    guide = list_guides().get(name)
    if guide is None:
        return None
    return GuidePage(guide, render(name))


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
def _sections() -> tuple[Section, ...]:
    return tuple(section for guide in list_guides().values() for section in _split(guide))


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


def search(query: str) -> list[Hit]:
    """Return the sections that contain every word of the query, the best first."""
    words = query[:MAX_QUERY_LENGTH].lower().split()[:MAX_WORDS]
    if not words:
        return []
    ranked = [(score, section) for section in _sections() if (score := _score(section, words))]
    ranked.sort(key=_order)
    return [Hit(section, _excerpt(section, words[0])) for _, section in ranked[:MAX_RESULTS]]


def _order(ranked: tuple[int, Section]) -> tuple[int, int]:
    score, section = ranked
    return -score, len(section.text)


def _score(section: Section, words: list[str]) -> int:
    title = f"{section.guide.title} {section.title}".lower()
    total = 0
    for word in words:
        count = section.folded.count(word) + HEADING_WEIGHT * title.count(word)
        if not count:
            return 0
        total += min(count, 2 * HEADING_WEIGHT)
    return total


def _excerpt(section: Section, word: str) -> str:
    start = max(0, section.folded.find(word) - EXCERPT // 4)
    text = SPACES.sub(" ", CELLS.sub(" ", section.text[start : start + EXCERPT]))
    if start:
        text = f"… {text.partition(' ')[2]}"
    if start + EXCERPT < len(section.text):
        text = f"{text.rpartition(' ')[0]} …"
    return text
