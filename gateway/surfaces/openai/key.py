"""GET /v1/key: usage and limit of a key."""

from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web.answer_structs import Answer, Usd
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

TAG = "Account"


class KeyFiguresAnswer(Answer):
    """Usage and limit of a key. This gateway has no developer plans; clients of the original product expect the members
    of one."""

    label: str
    usage: Usd
    limit: Usd | None
    dev_plan: str = "none"
    dev_plan_credits_used: str = "0"
    dev_plan_credits_limit: str = "0"
    dev_plan_credits_remaining: str = "0"
    dev_plan_premium_weekly_limit: str = "0"
    dev_plan_premium_credits_used: str = "0"
    dev_plan_premium_week_resets_at: str | None = None


class KeyUsageAnswer(Answer):
    data: KeyFiguresAnswer


def show_key(services: Services, inbound: Inbound) -> Outbound:
    """Show the key's own usage and limit as strings in USD; works even when a spending limit is reached."""
    caller = auth_module.require_user_key(auth_module.caller_of(services, inbound))
    status = services.billing.budgets.status(caller.key_id)
    figures = KeyFiguresAnswer.of(status, label=caller.key_name, limit=status.total_nusd)
    return json_reply(KeyUsageAnswer(figures).encode(), inbound.shown_id)


OPERATIONS = (
    Operation("GET", "/v1/key", show_key,
              about=About("Show the key's usage and limit", TAG, answer=KeyUsageAnswer)),
)  # fmt: skip
