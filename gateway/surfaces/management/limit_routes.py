"""Spending limits in bodies: a total, and one for a period given as an amount and a unit."""

from collections.abc import Mapping
from typing import Any

from marshmallow import fields, validate

from gateway.errors import InvalidRequest
from gateway.limits.budgets import Limits
from gateway.limits.periods import UNITS, make_period
from gateway.limits.thresholds import MOST_THRESHOLDS, WHOLLY
from gateway.surfaces.validation_schemas import OneOf, StrictBody, Usd, WholeNumber

PERIOD = ("periodUsageLimit", "periodUsageDurationValue", "periodUsageDurationUnit")
FIELDS = ("usageLimit", *PERIOD)
MOST_UNITS = max(most for _, most in UNITS.values())


class LimitChange(StrictBody):
    """Absent members stay unchanged, null removes the limit. `alertThresholds` are the percentages of the limits at
    which an alert is sent; an empty list stands for those of the installation."""

    usageLimit = Usd(allow_none=True)
    periodUsageLimit = Usd(allow_none=True)
    periodUsageDurationValue = WholeNumber(1, MOST_UNITS, allow_none=True)
    periodUsageDurationUnit = OneOf(tuple(UNITS), allow_none=True)
    alertThresholds = fields.List(WholeNumber(1, WHOLLY), validate=validate.Length(max=MOST_THRESHOLDS))


def read_limits(given: Mapping[str, Any], now: Limits = Limits()) -> Limits:
    """`now` with what is given in its place. InvalidRequest: a period without all three of its members, or out of
    bounds."""
    period = now.period
    current = (now.period_nusd, period.amount if period else None, period.unit if period else None)
    amount, value, unit = (given.get(name, old) for name, old in zip(PERIOD, current, strict=True))
    if len({amount is None, value is None, unit is None}) > 1:
        missing = next(name for name, v in zip(PERIOD, (amount, value, unit), strict=True) if v is None)
        raise InvalidRequest(f"A period limit needs all of {', '.join(PERIOD)}.", param=missing)
    total = given.get("usageLimit", now.total_nusd)
    alert_at = tuple(given.get("alertThresholds", now.alert_at))
    return Limits(total, amount, make_period(value, unit) if value is not None else None, alert_at)
