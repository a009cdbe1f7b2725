"""GET /v1/key: usage and limit of a key."""

from gateway.money import format_usd
from gateway.surfaces import auth
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.openai import shapes
from gateway.worker.services import Services

TAG = "Account"
# This gateway has no developer plans; clients of the original product expect these members.
NO_PLAN = {
    "devPlan": "none",
    "devPlanCreditsUsed": "0",
    "devPlanCreditsLimit": "0",
    "devPlanCreditsRemaining": "0",
    "devPlanPremiumWeeklyLimit": "0",
    "devPlanPremiumCreditsUsed": "0",
    "devPlanPremiumWeekResetsAt": None,
}


def show_key(services: Services, inbound: Inbound) -> Outbound:
    """Show the key's own usage and limit as strings in USD; works even when a spending limit is reached."""
    caller = auth.require_user_key(auth.caller_of(services, inbound))
    status = services.billing.budgets.status(caller.key_id)
    limit = status.limits.total_nusd
    data = {
        "label": caller.key_name,
        "usage": format_usd(status.usage_nusd),
        "limit": None if limit is None else format_usd(limit),
        **NO_PLAN,
    }
    return json_reply({"data": data}, inbound.shown_id)


OPERATIONS = (
    Operation("GET", "/v1/key", show_key,
              about=About("Show the key's usage and limit", TAG, answer=shapes.KEY, errors=(401, 403, 410, 503))),
)  # fmt: skip
