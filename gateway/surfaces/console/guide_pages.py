"""`/docs/<topic>`: short guides for callers; `/docs/guides`: the pages of `docs/`, with a search. All of them name this
gateway's address. No sign-in is needed."""

import functools
import itertools
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from markupsafe import Markup, escape

from gateway.configuration.settings import ROOT
from gateway.errors import NotFound
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

if TYPE_CHECKING:
    import markdown_it
    from markdown_it.token import Token
else:
    # 3 MB that only the guides need.
    markdown_it = LazyImport("markdown_it")


# The guides of `docs/` as HTML with a table of contents, and their sections as plain text.

FOLDER = ROOT / "docs"
PATH = "/docs/guides"
IMAGE_TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".webp": "image/webp"}
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


# The search in the guides: pages whose title or headings name the subject come before pages that mention it.

MAX_QUERY_LENGTH = 100
MAX_WORDS = 8
MAX_RESULTS = 15
MAX_FURTHER = 3
EXCERPT_LENGTH = 160
WORD = re.compile(r"[\w./$]+")
TABLE_BORDERS = re.compile(r"[|●·]|-{3,}")  # borders of tables, and marks that stand for yes and no in them
# Words of a question that name no subject.
FILLER_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are at by can do does for from get how i in is it make my of on or set the their this to up use "
        "what when where which who why with work works you your",
    )
)
# Words of readers → the word of the guides.
SYNONYMS = {
    "billing": "chargeback",
    "cost": "usage",
    "docker": "container",
    "fallback": "failover",
    "install": "start",
    "invoice": "chargeback",
    "k8s": "kubernetes",
    "okta": "sso",
    "pricing": "price",
    "quickstart": "start",
    "saml": "sso",
    "spending": "usage",
    "webauthn": "passkey",
}
# The value of a word by its place. In the text, each occurrence counts one, up to a limit.
TITLE_VALUE = 60
ALL_IN_TITLE = 40
WHOLE_TITLE = 400
IN_HEADING = 20
ALL_IN_HEADING = 40
# A word that begins a longer one ("rout" in "routing") counts this part, and shorter words count as whole words only.
BEGINNING_PART = 0.5
SHORTEST_BEGINNING = 4
MAX_IN_TEXT = 10
# Pages for people who change the gateway count a part of those for people who use it.
INSIDE = re.compile(r"decisions/|extending/|architecture$|performance$|reliability$")
INSIDE_PART = 0.3


class Hit(NamedTuple):
    """A guide that was found, with the section that fits best, the text around the first word in it, and further
    sections that fit."""

    guide: Guide
    section: Section
    excerpt: str
    further: tuple[Section, ...]


class _Ranked(NamedTuple):
    """A guide with its score. `found` is the number of words that it contains."""

    found: int
    score: float
    guide: Guide


def search(query: str) -> list[Hit]:
    """Return the guides that contain every word of the query, the best first; without one, those with most words."""
    words = _read_words(query)
    if not words:
        return []
    ranked = [_rank(guide, words) for guide in list_guides().values()]
    most = max(one.found for one in ranked)
    if not most:
        return []
    best = sorted((one for one in ranked if one.found == most), key=lambda one: -one.score)
    return [_show(one.guide, words) for one in best[:MAX_RESULTS]]


def _read_words(query: str) -> list[str]:
    found = [word.rstrip("./$") for word in WORD.findall(query[:MAX_QUERY_LENGTH].lower())]
    words = [word for word in found if word][:MAX_WORDS]
    named = [word for word in words if word not in FILLER_WORDS] or words
    return [_singular(word) for word in dict.fromkeys(named)]


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word.removesuffix("s")
    return word


def _rank(guide: Guide, words: list[str]) -> _Ranked:
    sections = list_sections()[guide.name]
    title = _words_of(guide.title) | _words_of(guide.name)
    scores = [_score(word, title, sections) for word in words]
    total = sum(scores)
    if all(_match(title, word) for word in words):
        total += ALL_IN_TITLE
    total += ALL_IN_HEADING * max(min(_match(_words_of(one.title), word) for word in words) for one in sections)
    if set(words) == set(_read_words(guide.title)):
        total += WHOLE_TITLE
    if INSIDE.match(guide.name):
        total *= INSIDE_PART
    return _Ranked(sum(score > 0 for score in scores), total, guide)


def _score(word: str, title: set[str], sections: tuple[Section, ...]) -> float:
    """Return the value of a word for a guide; another word for the same subject counts half."""
    score = _score_spelling(word, title, sections)
    other = SYNONYMS.get(word)
    if other is not None:
        score = max(score, _score_spelling(other, title, sections) / 2)
    return score


def _score_spelling(word: str, title: set[str], sections: tuple[Section, ...]) -> float:
    score = min(sum(section.folded.count(word) for section in sections), MAX_IN_TEXT)
    heading = max((_match(_words_of(section.title), word) for section in sections[1:]), default=0)
    return score + TITLE_VALUE * _match(title, word) + IN_HEADING * heading


@functools.cache
def _words_of(title: str) -> set[str]:
    """Return the words of a title or heading, of which the guides have some hundreds."""
    return {_singular(word) for word in re.findall(r"\w+", title.lower())}


def _match(words: set[str], word: str) -> float:
    """Return 1 for one of the words, a part of it for the beginning of one, otherwise 0."""
    if word in words:
        return 1
    if len(word) >= SHORTEST_BEGINNING and any(other.startswith(word) for other in words):
        return BEGINNING_PART
    return 0


def _show(guide: Guide, words: list[str]) -> Hit:
    sections = list_sections()[guide.name]
    valued = [(*_value_section(section, words), -index, section) for index, section in enumerate(sections)]
    valued.sort(reverse=True)
    best = valued[0][-1]
    title = _words_of(guide.title) | _words_of(guide.name)
    if all(_match(title, word) for word in words):
        best = sections[0]  # the whole page is about the subject
    further = [section for found, _, _, section in valued if found == len(words) and section is not best]
    return Hit(guide, best, _excerpt(best, words), tuple(further[:MAX_FURTHER]))


def _value_section(section: Section, words: list[str]) -> tuple[int, float]:
    """Return how many of the words a section contains, and how well it fits."""
    title = _words_of(section.title)
    found = 0
    value = 0.0
    for word in words:
        match = _match(title, word)
        count = section.folded.count(word)
        found += bool(match or count)
        value += IN_HEADING * match + min(count, MAX_IN_TEXT)
    return found, value


def _excerpt(section: Section, words: list[str]) -> str:
    places = [place for word in words if (place := section.folded.find(word)) >= 0]
    start = max(0, min(places, default=0) - EXCERPT_LENGTH // 4)
    text = SPACES.sub(" ", TABLE_BORDERS.sub(" ", section.text[start : start + EXCERPT_LENGTH]))
    if start:
        text = f"… {text.partition(' ')[2]}"
    if start + EXCERPT_LENGTH < len(section.text):
        text = f"{text.rpartition(' ')[0]} …"
    return text


# Topic → title; the template of a topic is guide_<topic>.html.
TOPICS = {
    "quickstart": "Quickstart",
    "models": "Models",
    "api": "API",
    "sdk": "SDKs",
}
# The pages that a newcomer reads first, in this order; the list of all guides shows them above the others.
FIRST_GUIDES = ("start", "tutorial", "concepts", "how-to", "clients", "console")
IMAGE_HEADERS = [
    ("Cache-Control", "public, max-age=3600"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
]


def show_guide(topic: str, services: Services, inbound: Inbound) -> Outbound:
    """Show the guide to a topic."""
    return _page(inbound, f"guide_{topic}.html", TOPICS[topic], topic)


def _page(inbound: Inbound, template: str, title: str, topic: str = "guides", **values: Any) -> Outbound:
    """Return a page with the navigation of the guides and their script, which adds buttons that copy code."""
    return page(inbound, template, title, wide=True, scripts=True, topic=topic, topics=TOPICS, **values)


def show_guides(services: Services, inbound: Inbound) -> Outbound:
    """List all guides, or with `q` the sections that contain these words."""
    query = parse_qs(inbound.query).get("q", [""])[0][:MAX_QUERY_LENGTH].strip()
    listed = compute(list_guides)
    first = [listed[name] for name in FIRST_GUIDES if name in listed]
    return _page(
        inbound,
        "guide_list.html",
        "Guides",
        query=query,
        hits=compute(search, query),
        first=first,
        others=[guide for guide in listed.values() if guide not in first and "/" not in guide.name],
        decisions=[guide for guide in listed.values() if "/" in guide.name],
        for_reader=partial(name_address, address=inbound.base_url),
    )


def show_page(services: Services, inbound: Inbound) -> Outbound:
    """Show a guide or an image of one. Raises NotFound for an unknown name."""
    name = inbound.params["name"]
    media_type = IMAGE_TYPES.get(PurePosixPath(name).suffix)
    if media_type is not None:
        image = compute(find_image, name)
        if image is None:
            raise NotFound("There is no image at this address.")
        return Outbound(200, [("Content-Type", media_type), *IMAGE_HEADERS], image)
    shown = compute(find_page, name, inbound.base_url)
    if shown is None:
        return _missing(inbound, "There is no guide at this address.")
    return _page(inbound, "guide_page.html", shown.guide.title, text=Markup(shown.html), contents=shown.contents)


def show_not_found(services: Services, inbound: Inbound) -> Outbound:
    """Answer 404 with the navigation and the search of the guides."""
    return _missing(inbound, "There is no page at this address.")


def _missing(inbound: Inbound, text: str) -> Outbound:
    return _page(inbound, "guide_missing.html", "Not found", topic="", status=404, text=text)


OPERATIONS: tuple[Operation, ...] = (
    *(Operation("GET", f"/docs/{topic}", as_page(partial(show_guide, topic))) for topic in TOPICS),
    Operation("GET", PATH, as_page(show_guides)),
    Operation("GET", f"{PATH}/<path:name>", as_page(show_page)),
    Operation("GET", "/docs/<path:place>", as_page(show_not_found)),
)
