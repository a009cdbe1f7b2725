"""Every operation of the management API."""

from gateway.surfaces.exchange import Operation
from gateway.surfaces.management import (
    activity,
    credits,
    devices,
    discounts,
    keys,
    members,
    organizations,
    projects,
    provider_keys,
    rules,
    sign_in,
)

OPERATIONS: tuple[Operation, ...] = (
    *sign_in.OPERATIONS,
    *devices.OPERATIONS,
    *organizations.OPERATIONS,
    *members.OPERATIONS,
    *projects.OPERATIONS,
    *keys.OPERATIONS,
    *provider_keys.OPERATIONS,
    *rules.OPERATIONS,
    *credits.OPERATIONS,
    *discounts.OPERATIONS,
    *activity.OPERATIONS,
)
