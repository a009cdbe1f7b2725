"""Every operation of the management API."""

from gateway.surfaces.http import Operation, Surface
from gateway.surfaces.management import (
    activity,
    alerts,
    applications,
    credits,
    devices,
    discounts,
    exports,
    key_caps,
    keys,
    logs,
    members,
    organizations,
    projects,
    provider_keys,
    rates,
    rules,
    sessions,
    sign_in,
    teams,
)
from gateway.surfaces.visitor import MANAGEMENT

OPERATIONS: tuple[Operation, ...] = (
    *sign_in.OPERATIONS,
    *sessions.OPERATIONS,
    *devices.OPERATIONS,
    *organizations.OPERATIONS,
    *members.OPERATIONS,
    *teams.OPERATIONS,
    *projects.OPERATIONS,
    *keys.OPERATIONS,
    *key_caps.OPERATIONS,
    *rates.OPERATIONS,
    *provider_keys.OPERATIONS,
    *rules.OPERATIONS,
    *credits.OPERATIONS,
    *discounts.OPERATIONS,
    *alerts.OPERATIONS,
    *applications.OPERATIONS,
    *activity.OPERATIONS,
    *logs.OPERATIONS,
    *exports.OPERATIONS,
)

SURFACE = Surface(
    "management",
    MANAGEMENT,
    OPERATIONS,
    prefixes=("/auth", "/orgs", "/projects", "/keys", "/discounts", "/activity", "/logs", "/user"),
)
