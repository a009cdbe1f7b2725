"""The organization, project and period that a person chose last: the next page that takes them asks about the same. A
cookie of the browser has them, links of the navigation repeat them, and the bar of a page (choice_bar.py) changes
them."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from gateway.surfaces.visitors.visitor import read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound

COOKIE = "llmgateway.choices"
COOKIE_S = 400 * 86_400
NAMES = {
    "organization": re.compile(r"org_[0-9a-f]{32}"),
    "projectId": re.compile(r"proj_[0-9a-f]{32}"),
    "timeRange": re.compile(r"1h|24h|7d|30d|90d|365d"),
}
# Page → the choices that it takes, and the periods that it knows.
PAGES: dict[str, tuple[str, ...]] = {
    "/console": ("organization", "timeRange", "7d", "30d", "90d"),
    "/console/explore": ("projectId", "timeRange", "1h", "24h", "7d", "30d", "365d"),
    "/console/outcomes": ("projectId", "timeRange", "24h", "7d", "30d", "365d"),
    "/console/logs": ("projectId", "timeRange", "1h", "24h", "7d", "30d"),
    "/console/sessions": ("projectId",),
    "/console/jobs": ("organization", "projectId"),
    "/console/files": ("organization", "projectId"),
    **dict.fromkeys(
        (f"/console/{name}" for name in ("people", "teams", "budgets", "projects", "automation", "audit", "settings")),
        ("organization",),
    ),
}


def read_choices(inbound: Inbound) -> dict[str, str]:
    """Return the choices of the query of a page, and of the cookie where the page asks for none."""
    kept = {name: value for name, value in parse_qsl(read_cookie(inbound, COOKIE)) if name in NAMES}
    query = dict(parse_qsl(inbound.query, keep_blank_values=True))
    chosen = kept | {name: query[name] for name in NAMES if name in query}
    return {name: value for name, value in chosen.items() if NAMES[name].fullmatch(value)}


def keep_choices(inbound: Inbound, chosen: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the header that remembers these choices; none where they are remembered already."""
    text = urlencode(chosen)
    if text == read_cookie(inbound, COOKIE):
        return []
    return [write_cookie(inbound, text, COOKIE_S if text else 0, COOKIE)]


def link_page(path: str, chosen: Mapping[str, str]) -> str:
    """Return the address of a page with the choices that it takes."""
    taken = PAGES.get(path, ())
    query = {name: value for name, value in chosen.items() if name in taken and (name != "timeRange" or value in taken)}
    return f"{path}?{urlencode(query)}" if query else path
