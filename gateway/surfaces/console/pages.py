"""Responses of the console: rendered templates with a strict content security policy, redirects and form bodies."""

import functools
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.callers.permissions import Permission
from gateway.errors import Forbidden, GatewayError, InvalidRequest
from gateway.limits.periods import UNITS
from gateway.runtime.plurals import many, plural
from gateway.surfaces.console.assets import asset_path
from gateway.surfaces.console.choice_bar import ChoiceBar, read_visible
from gateway.surfaces.console.kept_choices import link_page
from gateway.surfaces.console.page_help import HELP
from gateway.surfaces.console.shown_figures import (
    round_bytes,
    share_of,
    show_change,
    show_cost,
    show_count,
    show_duration,
    show_exact,
    show_fine_cost,
    show_period,
    show_step,
    show_time,
)
from gateway.surfaces.visitors.visitor import Visitor, read_cookie
from gateway.surfaces.web.http import Inbound, Outbound

# The console's navigation: the pages in their groups, and who sees each entry.


class PageLink(NamedTuple):
    """An entry. `icon` is the path of a drawing of 24 by 24 units. `permission` is what the page and those below it
    need, in an organization or a part of one; `alone`: the page only, since those below show what is one's own."""

    path: str
    name: str
    icon: str
    permission: Permission = "account:use"
    alone: bool = False


PERSON = "M9.5 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM3 20a6.5 6.5 0 0 1 13 0"
SLIDERS = "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4"
GROUPS: tuple[tuple[str, tuple[PageLink, ...]], ...] = (
    (
        "",
        (
            PageLink("/console", "Overview", "M4 4h7v8H4zM13 4h7v5h-7zM13 12h7v8h-7zM4 15h7v5H4z"),
            PageLink("/console/explore", "Explore", "M4 20h16M7 16v-5M12 16V6M17 16v-8", "usage:read"),
            PageLink("/console/outcomes", "Outcomes", "M5 21V4M5 4h11l-2 4 2 4H5", "usage:read"),
            PageLink("/console/logs", "Requests", "M4 6h16M4 12h16M4 18h10", "logs:read"),
            PageLink("/console/sessions", "Sessions", "M4 5h16v11H9l-4 4v-4H4zM8 9h8M8 12h5", "logs:read"),
            PageLink("/console/jobs", "Jobs", "M4 4h16v5H4zM4 11h16v4H4zM4 17h10v3H4z", "projects:read"),
            PageLink("/console/files", "Files", "M6 3h8l4 4v14H6zM14 3v4h4M12 18v-7M9 14l3-3 3 3", "projects:read"),
        ),
    ),
    (
        "Build",
        (
            PageLink("/console/playground", "Playground", "M4 5h16v11H9l-5 4zM8.5 9h7M8.5 12.5h4", "keys:use"),
            PageLink("/console/models", "Models", "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9"),
            PageLink(
                "/console/providers",
                "Providers",
                "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01M11 7.5h6M11 16.5h6",
            ),
            PageLink(
                "/console/routing",
                "Routing",
                "M5 6h4c4 0 4 12 8 12h3M5 18h4c4 0 4-12 8-12h3M17 3l3 3-3 3M17 15l3 3-3 3",
            ),
            PageLink("/console/setup", "Clients", "M4 5h16v11H4zM9 20h6M12 16v4M8 9l2 2-2 2M12.5 13H15", "keys:use"),
            PageLink(
                "/console/keys",
                "API keys",
                "M15 4a5 5 0 1 1-4.6 7L4 17.5V20h3v-2h2v-2h2l1-1.6M15.5 8.5h.01",
                "keys:read",
            ),
        ),
    ),
    (
        "Organization",
        (
            PageLink(
                "/console/people", "People", PERSON + "M16 4.5a3.5 3.5 0 0 1 0 7M17 14a6 6 0 0 1 4 6", "members:read"
            ),
            PageLink(
                "/console/teams",
                "Teams",
                "M4 5h7v6H4zM13 5h7v6h-7zM8.5 15h7v5h-7zM7.5 11v2h9v-2M12 13v2",
                "teams:read",
            ),
            PageLink(
                "/console/budgets",
                "Budgets",
                "M4 18a8 8 0 1 1 16 0M12 18l4-6M4 18h2M18 18h2M12 10V8",
                "limits:read",
                alone=True,
            ),
            PageLink("/console/projects", "Projects", "M4 6h6l2 2h8v11H4z", "projects:write"),
            PageLink(
                "/console/automation", "Automation", "M5 9h14v10H5zM12 4v5M9 13h.01M15 13h.01M9 16h6", "automation:read"
            ),
            PageLink("/console/alerts", "Alerts", "M6 16V11a6 6 0 0 1 12 0v5l1.5 2h-15zM10 21h4", "alerts:read"),
            PageLink(
                "/console/guardrails", "Guardrails", "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM9 12l2 2 4-4", "rules:read"
            ),
            PageLink(
                "/console/routes", "Routes", "M5 19V7a3 3 0 0 1 6 0v10a3 3 0 0 0 6 0V5M14 8l3-3 3 3", "rules:read"
            ),
            PageLink("/console/audit", "Audit log", "M6 3h9l4 4v14H6zM14 3v5h5M9 12h7M9 16h7", "audit:read"),
            PageLink("/console/settings", "Settings", SLIDERS, "credits:read"),
            PageLink(
                "/console/system",
                "System",
                "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01M16 10v4M12 10v4",
                "installation:operate",
            ),
        ),
    ),
    (
        "You",
        (
            PageLink(
                "/console/account", "Your account", "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20a7.5 7.5 0 0 1 15 0"
            ),
            PageLink(
                "/docs/guides",
                "Guides",
                "M4 5h6a2 2 0 0 1 2 2v13a2 2 0 0 0-2-2H4zM20 5h-6a2 2 0 0 0-2 2v13a2 2 0 0 1 2-2h6z",
            ),
            PageLink("/docs", "API reference", "M5 4h10a4 4 0 0 1 4 4v12H9a4 4 0 0 1-4-4zM5 16a4 4 0 0 1 4-4h10"),
        ),
    ),
)


def list_links(visitor: Visitor) -> list[tuple[str, list[PageLink]]]:
    """Return the groups with the entries that the visitor may open."""
    groups = []
    for name, links in GROUPS:
        shown = [link for link in links if _is_open(visitor, link)]
        if shown:
            groups.append((name, shown))
    return groups


def check_page(visitor: Visitor, path: str) -> None:
    """Raise Forbidden unless the visitor may open the page at `path`."""
    current = find_current(path)
    for _, links in GROUPS:
        for link in links:
            if link.path == (path if link.alone else current) and not _is_open(visitor, link):
                raise Forbidden("Your role does not allow this page.")


def _is_open(visitor: Visitor, link: PageLink) -> bool:
    if link.permission == "installation:operate":
        return visitor.is_operator()
    return link.permission == "account:use" or visitor.may(link.permission)


def find_current(path: str) -> str:
    """Return the path of the entry to which the page at `path` belongs; "" without one."""
    paths = [link.path for _, links in GROUPS for link in links]
    inside = [entry for entry in paths if path == entry or (entry != "/console" and path.startswith(f"{entry}/"))]
    return max(inside, key=len, default="")


HTML = ("Content-Type", "text/html; charset=utf-8")
FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 65_536
MAX_FIELDS = 60
AFTER_SIGN_IN = "/console"
# The colours that the person chose; without the cookie those of the system.
THEME_COOKIE = "llmgateway.theme"
THEMES = {"light": "Light", "dark": "Dark"}
# Referrer-Policy same-origin: with no-referrer, browsers would send "Origin: null" with our own forms.
SAFE = [
    ("Cache-Control", "no-store"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
]


@functools.cache
def templates() -> Environment:
    """Return the template environment, which escapes every value. Templates are in `templates/`."""
    loader = PackageLoader("gateway.surfaces.console")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "cost": show_cost,
        "fine_cost": show_fine_cost,
        "count": show_count,
        "bytes": round_bytes,
        "duration": show_duration,
        "time": show_time,
        "step": show_step,
        "share": share_of,
        "period": show_period,
        "change": show_change,
        "exact": show_exact,
        "many": many,
        "plural": plural,
    }
    environment.globals["period_units"] = tuple(UNITS)
    return environment


def page(
    inbound: Inbound,
    template: str,
    title: str,
    status: int = 0,
    error: GatewayError | None = None,
    form_redirects: bool = False,
    scripts: bool = False,
    visitor: Visitor | None = None,
    sources: str = "",
    bar: ChoiceBar | None = None,
    **values: Any,
) -> Outbound:
    """Render `template` as a response.

    With a `visitor`, the page has the navigation of this person and the console's scripts; `scripts` allows a page
    without a visitor to load its own. `bar` has the choices at the top of the page. `sources` are the directives
    of the content security policy for images and sound; without them, a page with a visitor may also show pictures that
    it contains, because pages that htmx exchanges have the policy of the first one.

    The page shows an `error` above its content and has the error's status unless `status` is given. Set
    `form_redirects` if the response to the page's form redirects to another site: browsers check redirects against
    `form-action` and block them without a message.
    """
    problem = ""
    if error is not None:
        problem = error.message
        status = status or error.status
    values = {"wide": False, "message": "", "title": title, "problem": problem, "base": inbound.base_url, **values}
    theme = read_cookie(inbound, THEME_COOKIE)
    values |= {"theme": theme if theme in THEMES else "", "themes": {"": "System", **THEMES}}
    values["asset"] = functools.partial(asset_path, base_url=inbound.base_url)
    script_sources = ""
    if visitor is not None or scripts:
        script_sources = "script-src 'self'; connect-src 'self'; "
    if not sources:
        sources = "img-src 'self'" if visitor is None else "img-src 'self' data:"
    if visitor is not None:
        current = find_current(inbound.path)
        values["link_page"] = functools.partial(link_page, chosen=read_visible(inbound, visitor))
        values |= {
            "link_groups": list_links(visitor),
            "current": current,
            "bar": bar,
            "bar_path": inbound.path,
            "help": HELP.get(current),
            "may": visitor.may,
        }
    text = templates().get_template(template).render(values)
    forms = "form-action 'self'; "
    if form_redirects:
        forms = ""
    ends = "frame-ancestors 'none'; base-uri 'none'"
    policy = f"default-src 'none'; style-src 'self'; {sources}; {script_sources}{forms}{ends}"
    return Outbound(status or 200, [HTML, *SAFE, ("Content-Security-Policy", policy)], text.encode())


def redirect(inbound: Inbound, path: str, headers: list[tuple[str, str]] | None = None) -> Outbound:
    """Redirect to a path of this site with status 303. `headers` replace default headers of the same name."""
    replaced = {name for name, _ in headers or ()}
    defaults = [(name, value) for name, value in SAFE if name not in replaced]
    return Outbound(303, [("Location", inbound.base_url + path), *defaults, *(headers or ())])


def read_form(inbound: Inbound) -> dict[str, str]:
    """Return the fields of a submitted form. Raises InvalidRequest for any other body."""
    if FORM_TYPE not in inbound.header("content-type").lower() or len(inbound.body) > MAX_FORM_BYTES:
        raise InvalidRequest("The request is not a form of this page. Open the page again.")
    text = inbound.body.decode("utf-8", "replace").replace("\0", "")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidRequest("The request is not a form of this page. Open the page again.") from None


def own_path(text: str) -> str:
    """Return `text` if it is a path of this site, otherwise the page after sign-in. Prevents open redirects."""
    inside = text.startswith("/") and not text.startswith("//") and "\\" not in text
    if inside and text.isprintable() and text.isascii():
        return text
    return AFTER_SIGN_IN
