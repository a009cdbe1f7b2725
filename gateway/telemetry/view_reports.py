"""A saved view as it is sent: as an event to an address for alerts, and as an e-mail in plain text and HTML.

Names in it (keys, people, tags) are text of tenants: HTML is escaped here, and the forms of alerts escape theirs.
"""

import hashlib
from html import escape
from typing import Any

from msgspec import Struct

from gateway.accounts.view_subscriptions import ViewSubscription
from gateway.clock import SECOND_US
from gateway.transport.mail import Mail

EVENT = "view.weekly"
CELL = "padding:4px 12px 4px 0;border-bottom:1px solid #d0d5dd"


class ViewFact(Struct, frozen=True):
    """A name of the view: its value and its change, in words."""

    name: str
    value: str
    change: str


class ViewReport(Struct, frozen=True):
    """The figures of a view. `message` is a sentence about the sum; `first` and `last` are the days of the period,
    `link` is the page with the same figures, "" where the installation has no public address."""

    name: str
    message: str
    measure: str
    group: str
    facts: tuple[ViewFact, ...]
    first: str
    last: str
    link: str

    @property
    def title(self) -> str:
        """Return the headline."""
        return f"{self.name}: {self.first} to {self.last}"


def ident_of(subscription: ViewSubscription) -> str:
    """Return the id of what is sent of a subscription in its week; repeated deliveries have the same one."""
    digest = hashlib.sha256(f"{subscription.id}\n{subscription.next_at_us}".encode()).hexdigest()[:32]
    return f"evt_{digest}"


def event_of_view(subscription: ViewSubscription, report: ViewReport, at_us: int) -> dict[str, Any]:
    """Return what an address for alerts gets."""
    data = {
        "subject": subscription.view_id,
        "title": report.title,
        "message": report.message,
        "remedy": "",
        "facts": [[fact.name, f"{fact.value} ({fact.change})" if fact.change else fact.value] for fact in report.facts],
        "link": report.link,
        "view": subscription.view_id,
        "subscription": subscription.id,
        "organization": subscription.organization_id,
        "from": report.first,
        "to": report.last,
    }
    return {
        "object": "event",
        "id": ident_of(subscription),
        "type": EVENT,
        "level": "info",
        "created_at": at_us // SECOND_US,
        "data": data,
    }


def mail_of_view(subscription: ViewSubscription, report: ViewReport, email: str, stop: str) -> Mail:
    """Return the e-mail to a person; `stop` is the address of the page that ends it."""
    return Mail(
        email,
        report.title,
        _write_text(report, stop),
        html=_write_html(report, stop),
        stop=stop,
        ident=ident_of(subscription),
        subscription=subscription.id,
    )


def _write_text(report: ViewReport, stop: str) -> str:
    parts = [report.title, report.message]
    if report.facts:
        width = max(len(fact.name) for fact in report.facts)
        lines = [f"{fact.name:<{width}}  {fact.value}  {fact.change}".rstrip() for fact in report.facts]
        parts.append("\n".join((f"{report.measure} by {report.group}:", *lines)))
    if report.link:
        parts.append(f"The figures with a plot, and the requests behind them:\n{report.link}")
    parts.append(f"You get this each week because you subscribed to it. Stop it:\n{stop}")
    return "\n\n".join(parts) + "\n"


def _write_html(report: ViewReport, stop: str) -> str:
    rows = "".join(
        f'<tr><td style="{CELL}">{escape(fact.name)}</td><td style="{CELL};text-align:right">{escape(fact.value)}</td>'
        f'<td style="{CELL};text-align:right">{escape(fact.change)}</td></tr>\n'
        for fact in report.facts
    )
    heads = (report.group, report.measure, "Change")
    head = "".join(f'<th scope="col" style="{CELL};text-align:left">{escape(text)}</th>' for text in heads)
    table = f'<table style="border-collapse:collapse">\n<tr>{head}</tr>\n{rows}</table>\n' if rows else ""
    link = f'<p><a href="{escape(report.link)}">Open the view</a></p>\n' if report.link else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(report.title)}</title></head>\n"
        '<body style="font-family:system-ui,sans-serif;max-width:40em">\n'
        f'<h1 style="font-size:1.25em">{escape(report.title)}</h1>\n<p>{escape(report.message)}</p>\n{table}{link}'
        '<p style="font-size:0.85em">You get this each week because you subscribed to it. '
        f'<a href="{escape(stop)}">Stop it</a></p>\n</body></html>\n'
    )
