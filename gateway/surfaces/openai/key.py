"""GET /v1/key and GET /v1/credits: what a key has spent, and what its organization has left."""

from gateway.money import format_usd
from gateway.services import Services
from gateway.surfaces import auth
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.openai import shapes
from gateway.surfaces.replies import json_reply

TAG = "BillingIdentity"
# There are no developer plans here; clients of the product expect their members (HTTP reference, 3.12).
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
    """The key's own usage and limit as strings in USD; works when a spending limit is reached."""
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


def show_credits(services: Services, inbound: Inbound) -> Outbound:
    """The organization's balance and lifetime spend; both spellings of the latter, since clients differ."""
    caller = auth.require_user_key(auth.caller_of(services, inbound))
    balance = services.billing.ledger.balance(caller.organization_id)
    used = format_usd(balance.spent_nusd)
    left = {"balance": format_usd(balance.balance_nusd), "unlimited": balance.unlimited}
    body = {**left, "total_used": used, "totalUsed": used}
    return json_reply(body, inbound.shown_id)


ERRORS = (401, 403, 410, 503)
OPERATIONS = (
    Operation("GET", "/v1/key", show_key,
              about=About("The key's usage and limit", TAG, answer=shapes.KEY, errors=ERRORS)),
    Operation("GET", "/v1/credits", show_credits,
              about=About("The organization's credits", TAG, answer=shapes.CREDITS, errors=ERRORS)),
)  # fmt: skip
