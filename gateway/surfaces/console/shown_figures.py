"""Costs, counts and times as people read them: rounded, with the exact value in the title."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from gateway.clock import to_datetime
from gateway.money import format_usd, parse_usd, round_usd

SECOND = 1000  # milliseconds
MINUTE = 60 * SECOND
FINE_DECIMALS = 4
# Attributes that identity providers state about people, as people read them.
ATTRIBUTE_LABELS = {
    "costCenter": "Cost center",
    "department": "Department",
    "division": "Division",
    "organization": "Organization",
    "employeeNumber": "Employee number",
}
# Least count → size of the unit and its letter: 12,345 is 12.3K.
UNITS = ((10**9, 10**9, "B"), (10**6, 10**6, "M"), (10**4, 10**3, "K"))


def show_cost(cost: int | str) -> Markup:
    """Return nano-dollars, or dollars as an exact text, rounded and with the exact amount in the title."""
    if isinstance(cost, str):
        cost = parse_usd(cost)
    return Markup('<span title="${}">{}</span>').format(format_usd(cost), round_usd(cost))


def show_fine_cost(cost: int | str) -> Markup:
    """Return a part of a cost with at least four decimals, so that parts can be compared."""
    if isinstance(cost, str):
        cost = parse_usd(cost)
    text = round_usd(cost, FINE_DECIMALS) if cost else "$0"
    return Markup('<span title="${}">{}</span>').format(format_usd(cost), text)


def round_count(count: int) -> str:
    """Return a count in thousands, millions or billions once it is long."""
    for minimum, size, letter in UNITS:
        if count >= minimum:
            return f"{float(f'{count / size:.3g}'):,g}{letter}"
    return f"{count:,}"


def show_count(count: int) -> Markup:
    """Return a count, rounded and with the exact number in the title."""
    return Markup('<span title="{}">{}</span>').format(f"{count:,}", round_count(count))


def round_bytes(size: int) -> str:
    """Return a number of bytes as people read it: 1.2 GB."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"


def round_duration(milliseconds: float) -> str:
    """Return a duration with three digits: 640 ms, 4.54 s, 12.3 s, or 2 min 5 s."""
    if milliseconds < SECOND:
        return f"{milliseconds:,.0f} ms"
    if milliseconds < 10 * SECOND:
        return f"{milliseconds / SECOND:.2f} s"
    if milliseconds < MINUTE:
        return f"{milliseconds / SECOND:.1f} s"
    minutes, rest = divmod(round(milliseconds / SECOND), MINUTE // SECOND)
    return f"{minutes:,} min {rest} s"


def show_duration(milliseconds: float) -> Markup:
    """Return a duration, rounded and with the milliseconds in the title."""
    return Markup('<span title="{} ms">{}</span>').format(f"{milliseconds:,.0f}", round_duration(milliseconds))


def show_change(now: int, before: int) -> str:
    """Return the difference to the period before in percent, such as "12 % more"."""
    percent = round((now - before) * 100 / before)
    if percent > 0:
        return f"{percent:,} % more"
    if percent < 0:
        return f"{-percent:,} % less"
    return "no more"


def show_exact(nano: int) -> str:
    """Return nano-dollars as an exact amount."""
    return f"${format_usd(nano)}"


def share_of(used: str, limit: str) -> int:
    """Return the used share of a limit in whole percent."""
    maximum = parse_usd(limit)
    if not maximum:
        return 100
    return parse_usd(used) * 100 // maximum


def show_period(limited: Mapping[str, Any]) -> str:
    """Return the period of a limit, such as "per month" or "per 12 hours"."""
    amount = limited["periodUsageDurationValue"]
    unit = limited["periodUsageDurationUnit"]
    if amount == 1:
        return f"per {unit}"
    return f"per {amount} {unit}s"


def show_step(step: str) -> str:
    """Return a day as "23 Nov", and a time in UTC as "14:05 UTC", which console.js shows in the reader's zone."""
    at = datetime.fromisoformat(step)
    if len(step) == len("2026-01-31"):
        return f"{at:%d %b}"
    return Markup('<time datetime="{}Z" data-format="minute">{} UTC</time>').format(at.isoformat(), f"{at:%H:%M}")


def show_time(at: int | str, style: str = "when") -> Markup:
    """Return microseconds, or a time of the management API, in UTC; console.js shows it in the reader's time zone.
    `style` is a format of console.js: when, seconds, clock or day."""
    moment = to_datetime(at) if isinstance(at, int) else datetime.fromisoformat(at).astimezone(UTC)
    text = f"{moment:%d %b %Y, %H:%M:%S} UTC"
    if style == "when":
        text = f"{moment:%d %b %Y, %H:%M} UTC"
    written = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" data-format="{}">{}</time>').format(written, style, text)
