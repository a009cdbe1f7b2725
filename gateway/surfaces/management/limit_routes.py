"""Spending limits in bodies: a total, and one for a period given as an amount and a unit; and a check that no limited
subject is ended by a lower role."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from marshmallow import Schema, fields, validate

from gateway.admin.held_limits import SubjectHold
from gateway.errors import InvalidRequest
from gateway.limits.budgets import MAX_THRESHOLDS, WHOLLY, Limits
from gateway.limits.models import EXACT, LIKELY
from gateway.limits.periods import UNITS, ZONE_FIELD, Period, make_calendar_period, make_period
from gateway.surfaces.management.managed_operation import ManagedCall
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBody, TextField, Usd, WholeNumber, describe_field

PERIOD = ("periodUsageLimit", "periodUsageDurationValue", "periodUsageDurationUnit")
# The columns of the commands' tables.
TABLE = (
    "id usage_limit usage period_usage_limit period_usage_duration_value period_usage_duration_unit "
    "current_period_usage current_period_reset_at alert_thresholds"
)
MAX_UNITS = max(maximum for _, maximum in UNITS.values())


class LimitFields(Schema):
    """A limit in total, and one for a period."""

    usageLimit = Usd(allow_none=True, about="US dollars in total, or none.")
    periodUsageLimit = Usd(allow_none=True, about="US dollars per period, or none.")
    periodUsageDurationValue = WholeNumber(1, MAX_UNITS, allow_none=True, about="Length of the period, as 12h or 1mo.")
    periodUsageDurationUnit = OneOf(tuple(UNITS), allow_none=True, about="Unit of the period's length.", example="day")
    periodTimezone = TextField(
        1, 50, allow_none=True, about="Time zone of calendar periods, such as Europe/Berlin; none: the period rolls."
    )


FIELDS = tuple(LimitFields().fields)
RESERVATION = "reservation"


class ReservationField(Schema):
    """The amount that requests reserve of the limits of a key, member or team: exact or likely."""

    reservation = OneOf(
        (LIKELY, EXACT),
        about="Whether requests reserve their likely cost or the highest possible one.",
        example=EXACT,
    )


class LimitChange(LimitFields, ReservationField, StrictBody):
    """Absent members stay unchanged, null removes the limit. `alertThresholds` are the percentages of the limits at
    which an alert is sent; an empty list stands for those of the installation."""

    alertThresholds = fields.List(
        WholeNumber(1, WHOLLY),
        validate=validate.Length(max=MAX_THRESHOLDS),
        metadata=describe_field("Percentages of the limits at which an alert is sent.", {"default": []}),
    )


def limit_commands(subject: str) -> tuple[str, str]:
    """Return the commands that set and clear the limits of `subject`, a variable of the path. The three operations
    share them; the prefix of the id decides."""
    options = (
        f"--total=usageLimit --amount=periodUsageLimit --period={PERIOD[1]}+{PERIOD[2]} "
        f"--timezone={ZONE_FIELD} --alert-at=alertThresholds --reservation=reservation"
    )
    cleared = " ".join(f"{name}=null" for name in FIELDS)
    return (
        f"limits set <{subject}> {options} | {TABLE}",
        f"limits clear <{subject}> {cleared} alertThresholds=[] | {TABLE}",
    )


def read_limits(change: Mapping[str, Any], now: Limits = Limits()) -> Limits:
    """Return `now` with the members of `change`. Raises InvalidRequest for an incomplete or too long period."""
    period = now.period
    current = (now.period_nusd, period.amount if period else None, period.unit if period else None)
    amount, value, unit = (change.get(name, old) for name, old in zip(PERIOD, current, strict=True))
    if len({amount is None, value is None, unit is None}) > 1:
        missing = next(name for name, v in zip(PERIOD, (amount, value, unit), strict=True) if v is None)
        raise InvalidRequest(f"A period limit needs all of {', '.join(PERIOD)}.", param=missing)
    total = change.get("usageLimit", now.total_nusd)
    alert_at = tuple(change.get("alertThresholds", now.alert_at))
    if ZONE_FIELD in change:
        zone = change[ZONE_FIELD]
    elif PERIOD[1] in change or PERIOD[2] in change or period is None:
        zone = None  # a new period rolls unless it names a zone
    else:
        zone = period.zone
    reservation = change.get(RESERVATION, now.reservation)
    return Limits(total, amount, _read_period(value, unit, zone), alert_at, reservation)


def _read_period(value: Any, unit: Any, zone: Any) -> Period | None:
    if value is None:
        return None
    if zone:
        return make_calendar_period(value, unit, zone)
    return make_period(value, unit)


# The check that no subject of a limit that a higher role set ends: teams, projects, keys and provider keys.


def hold_subject(
    call: ManagedCall[Any], organization_id: str, kinds: tuple[str, ...], ident: str
) -> Callable[[], None]:
    """Return what raises Forbidden (limit_not_yours) within the transaction that would end a subject."""
    sets_limits = call.visitor.manages("limits:write", organization_id)
    hold = SubjectHold(call.database, organization_id, call.actor, sets_limits)
    return partial(hold.check_end, kinds, ident)
