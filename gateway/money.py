"""Exact money: integer nano-dollars (n$, 10⁻⁹ USD); decimals only at the edge; rounding in one place.

A token can cost less than one nano-dollar, so prices are integers per million units. Each cost component is
rounded once, half up; totals are sums of components, so parts always add up.
"""

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

NANO = 1_000_000_000
MILLION = 1_000_000
# Bounds far above anything real, so that no sum of what is stored leaves 64 bits: of an amount that somebody sets, of
# the price of one unit, of what one call is billed, and of what one budget counts in all.
MOST_AMOUNT_NUSD = 1_000_000_000 * NANO
MOST_PRICE_USD = 1_000
MOST_CALL_NUSD = 10_000 * NANO
MOST_SETTLED_NUSD = 1_000_000_000 * NANO


def parse_usd(text: str | int | Decimal) -> int:
    """A decimal dollar amount ("12.34") as nano-dollars. ValueError if not finite, finer than 1 n$ or too large."""
    try:
        amount = Decimal(str(text).strip())
    except InvalidOperation:
        raise ValueError(f"not a decimal amount: {text!r}") from None
    if not amount.is_finite():
        raise ValueError(f"not a finite amount: {text!r}")
    if abs(amount) > MOST_AMOUNT_NUSD // NANO:
        raise ValueError(f"more than {MOST_AMOUNT_NUSD // NANO} dollars")
    scaled = amount * NANO
    if scaled != scaled.to_integral_value():
        raise ValueError(f"finer than a nano-dollar: {text!r}")
    return int(scaled)


@lru_cache(maxsize=256)
def format_usd(nano: int) -> str:
    """Nano-dollars as the shortest exact decimal string, e.g. 12340000000 → "12.34"."""
    if 0 < nano < NANO:  # as nearly all costs are
        return "0." + str(nano).zfill(9).rstrip("0")
    sign = "-" if nano < 0 else ""
    whole, rest = divmod(abs(nano), NANO)
    if not rest:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{rest:09d}".rstrip("0")


def usd_number(nano: int) -> float:
    """Nano-dollars as a JSON number of dollars: the double nearest to the exact amount (replies only)."""
    return nano / NANO


def price_per_million(text: str) -> int:
    """A price in USD per unit ("0.00000015", "0.15e-6") as integer nano-dollars per million units. ValueError.

    Prices in the wild are at most 10⁻¹⁵ USD fine; a finer one is rounded half up here, once, at load.
    """
    try:
        price = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"not a price: {text!r}") from None
    if not price.is_finite() or price < 0:
        raise ValueError(f"not a price: {text!r}")
    if price > MOST_PRICE_USD:
        raise ValueError(f"a price above {MOST_PRICE_USD} dollars a unit")
    return int((price * NANO * MILLION).to_integral_value(ROUND_HALF_UP))


def format_price(per_million: int) -> str:
    """Nano-dollars per million units as USD per unit, plain decimal without exponent ("0.00000015")."""
    if not per_million:
        return "0"
    text = f"{Decimal(per_million).scaleb(-15):f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def parse_fraction(text: str | int | float | Decimal) -> int:
    """A decimal fraction between 0 and 1, both excluded ("0.2"), as parts per million.

    ValueError if it is none, or finer than a millionth.
    """
    try:
        parts = Decimal(str(text).strip()) * MILLION
    except InvalidOperation:
        raise ValueError(f"not a decimal fraction: {text!r}") from None
    if not parts.is_finite() or not 0 < parts < MILLION:
        raise ValueError(f"not between 0 and 1: {text!r}")
    if parts != parts.to_integral_value():
        raise ValueError(f"finer than a millionth: {text!r}")
    return int(parts)


def format_fraction(ppm: int) -> str:
    """Parts per million as the shortest decimal fraction, e.g. 200000 → "0.2"."""
    return format_usd(ppm * (NANO // MILLION))


def cost(units: int, per_million: int) -> int:
    """units × price, rounded half up to whole nano-dollars (both non-negative)."""
    return (units * per_million + MILLION // 2) // MILLION
