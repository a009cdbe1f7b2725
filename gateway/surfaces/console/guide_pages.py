"""`/docs/<topic>`: short guides for callers, which name this gateway's address; `/docs/guides`: the pages of `docs/`,
with a search. No sign-in is needed."""

from functools import partial
from pathlib import PurePosixPath
from urllib.parse import parse_qs

from markupsafe import Markup

from gateway.errors import NotFound
from gateway.runtime.threads import compute
from gateway.surfaces.console import guides
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
IMAGE_HEADERS = [
    ("Cache-Control", "public, max-age=3600"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
]


def show_guide(topic: str, services: Services, inbound: Inbound) -> Outbound:
    """Show the guide to a topic."""
    return page(inbound, f"guide_{topic}.html", TOPICS[topic], wide=True, topic=topic, topics=TOPICS)


def show_guides(services: Services, inbound: Inbound) -> Outbound:
    """List all guides, or with `q` the sections that contain these words."""
    query = parse_qs(inbound.query).get("q", [""])[0][: guides.MAX_QUERY_LENGTH].strip()
    return page(
        inbound,
        "guide_list.html",
        "Guides",
        wide=True,
        topic="guides",
        topics=TOPICS,
        query=query,
        hits=compute(guides.search, query),
        guides=compute(guides.list_guides),
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
    shown = compute(guides.find_page, name)
    if shown is None:
        raise NotFound("There is no guide at this address.")
    text = Markup(shown.html)
    return page(inbound, "guide_page.html", shown.guide.title, wide=True, topic="guides", topics=TOPICS, text=text)


OPERATIONS: tuple[Operation, ...] = (
    *(Operation("GET", f"/docs/{topic}", as_page(partial(show_guide, topic))) for topic in TOPICS),
    Operation("GET", guides.PATH, as_page(show_guides)),
    Operation("GET", f"{guides.PATH}/<path:name>", as_page(show_page)),
)
