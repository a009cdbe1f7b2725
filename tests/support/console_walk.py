"""A walk through the console as one person: every page that links lead to, and every form that the pages offer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlsplit

from support.console import browser_headers, check_lists
from support.console_forms import FormParser
from support.management import Person, Tenants
from werkzeug.routing import Map, Rule
from werkzeug.test import TestResponse

from gateway.surfaces.console.table import SURFACE

# Pages that need no session, or that end it, and an address that redirects to another page.
OPEN = "login|logout|forgot|reset|invitation|assets|device|first|sso|usage|stop"
PUBLIC = re.compile(rf"/console/({OPEN})\b.*|/console/<path:place>")
EXAMPLES = 2  # pages of one row of the table that a walk opens
IDENT = re.compile(r"(org|key|pkey|proj|mem|team)_")
LINK = re.compile(r'href="http://[^/"]+(/console[^"#]*)')


@dataclass(frozen=True)
class OfferedForm:
    """A form that posts, with one of its buttons. `place` is the row of the table of the page that offers it."""

    path: str
    place: str
    fields: tuple[tuple[str, str], ...]
    action: str

    @property
    def subject(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Return what identifies the action whatever a person types: the page, the button and the hidden ids."""
        return self.place, self.action, tuple(pair for pair in self.fields if IDENT.match(pair[1]))


@dataclass
class Walk:
    """The pages that a person opened, by path, and the forms on them."""

    statuses: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    forms: list[OfferedForm] = field(default_factory=list)


def signed_in_rows() -> list[str]:
    """Return the paths of the table's pages for people who are signed in."""
    rows = (row for row in SURFACE.operations if row.method == "GET" and row.path.startswith("/console"))
    return sorted(row.path for row in rows if not PUBLIC.fullmatch(row.path))


RULES = Map([Rule(path, endpoint=path) for path in signed_in_rows()]).bind("localhost")


def walk(tenants: Tenants, who: Person) -> Walk:
    """Walk through the console as a person."""

    def fetch(path: str) -> tuple[int, str]:
        answer = tenants.client.get(path, headers=browser_headers(who))
        return answer.status_code, answer.text

    return follow_links(fetch)


def follow_links(fetch: Callable[[str], tuple[int, str]]) -> Walk:
    """Open the overview and, from link to link, some pages of each row of the table. `fetch` returns the status and the
    text of a path."""
    done = Walk()
    waiting = ["/console"]
    opened: dict[str, int] = {}
    while waiting:
        path = waiting.pop(0)
        plain = urlsplit(path).path
        place = RULES.match(plain, return_rule=False)[0] if RULES.test(plain) else ""
        assert place or PUBLIC.fullmatch(plain), f"{plain} is linked, and no page"
        if not place or plain in done.statuses or opened.get(place, 0) >= EXAMPLES:
            continue
        opened[place] = opened.get(place, 0) + 1
        done.statuses[plain], text = fetch(path)
        check_lists(text)
        done.texts[plain] = text
        done.places[plain] = place
        done.forms += read_forms(plain, place, text)
        waiting += [unescape(link) for link in LINK.findall(text)]
    return done


def read_forms(path: str, place: str, page: str) -> Iterator[OfferedForm]:
    """Return each button of each form that posts, with values in all fields."""
    parser = FormParser()
    parser.feed(page)
    for form in parser.forms:
        filled = {name: shown.filled(name) for name, shown in form.fields.items() if shown.value or not shown.is_box}
        for name, value in form.buttons or [("action", "")]:
            fields = {**filled, name: value}
            yield OfferedForm(urlsplit(form.action).path or path, place, tuple(sorted(fields.items())), value)


def submit(tenants: Tenants, who: Person, form: OfferedForm, csrf: str = "") -> TestResponse:
    """Send a form as a person, with their own token where `csrf` is given."""
    fields = dict(form.fields)
    if csrf:
        fields["csrf"] = csrf
    return tenants.client.post(form.path, headers=browser_headers(who), data=fields)
