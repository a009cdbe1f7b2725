"""`/docs/<topic>`: short guides for callers; `/docs/guides`: the pages of `docs/`, with a search. All of them name this
gateway's address. No sign-in is needed."""

from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs

from markupsafe import Markup

from gateway.errors import NotFound
from gateway.runtime.threads import compute
from gateway.surfaces.console import guide_search, guides
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

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
    query = parse_qs(inbound.query).get("q", [""])[0][: guide_search.MAX_QUERY_LENGTH].strip()
    listed = compute(guides.list_guides)
    first = [listed[name] for name in FIRST_GUIDES if name in listed]
    return _page(
        inbound,
        "guide_list.html",
        "Guides",
        query=query,
        hits=compute(guide_search.search, query),
        first=first,
        others=[guide for guide in listed.values() if guide not in first and "/" not in guide.name],
        decisions=[guide for guide in listed.values() if "/" in guide.name],
        for_reader=partial(guides.name_address, address=inbound.base_url),
    )


def show_page(services: Services, inbound: Inbound) -> Outbound:
    """Show a guide or an image of one. Raises NotFound for an unknown name."""
    name = inbound.params["name"]
    media_type = guides.IMAGE_TYPES.get(PurePosixPath(name).suffix)
    if media_type is not None:
        image = compute(guides.find_image, name)
        if image is None:
            raise NotFound("There is no image at this address.")
        return Outbound(200, [("Content-Type", media_type), *IMAGE_HEADERS], image)
    shown = compute(guides.find_page, name, inbound.base_url)
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
    Operation("GET", guides.PATH, as_page(show_guides)),
    Operation("GET", f"{guides.PATH}/<path:name>", as_page(show_page)),
    Operation("GET", "/docs/<path:place>", as_page(show_not_found)),
)
