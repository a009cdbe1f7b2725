"""Every operation of the management API."""

from gateway.surfaces.http import Operation, Surface
from gateway.surfaces.management import (
    activity_routes,
    agent_session_routes,
    alert_routes,
    applications,
    chargeback_routes,
    credit_routes,
    device_routes,
    discount_routes,
    exports,
    identity_routes,
    key_cap_routes,
    key_routes,
    log_routes,
    member_routes,
    operator_rate_routes,
    organization_routes,
    project_routes,
    provider_key_routes,
    rate_routes,
    rule_routes,
    service_account_routes,
    session_budget_routes,
    session_routes,
    sign_in_routes,
    team_routes,
)
from gateway.surfaces.visitor import MANAGEMENT

OPERATIONS: tuple[Operation, ...] = (
    *sign_in_routes.OPERATIONS,
    *session_routes.OPERATIONS,
    *identity_routes.OPERATIONS,
    *device_routes.OPERATIONS,
    *organization_routes.OPERATIONS,
    *member_routes.OPERATIONS,
    *team_routes.OPERATIONS,
    *project_routes.OPERATIONS,
    *key_routes.OPERATIONS,
    *key_cap_routes.OPERATIONS,
    *session_budget_routes.OPERATIONS,
    *rate_routes.OPERATIONS,
    *operator_rate_routes.OPERATIONS,
    *provider_key_routes.OPERATIONS,
    *rule_routes.OPERATIONS,
    *service_account_routes.OPERATIONS,
    *credit_routes.OPERATIONS,
    *discount_routes.OPERATIONS,
    *alert_routes.OPERATIONS,
    *applications.OPERATIONS,
    *activity_routes.OPERATIONS,
    *chargeback_routes.OPERATIONS,
    *agent_session_routes.OPERATIONS,
    *log_routes.OPERATIONS,
    *exports.OPERATIONS,
)

SURFACE = Surface(
    "management",
    MANAGEMENT,
    OPERATIONS,
    prefixes=(
        *("/auth", "/user", "/orgs", "/projects", "/keys"),
        *("/discounts", "/rate-limits", "/audit", "/activity", "/logs"),
    ),
)
