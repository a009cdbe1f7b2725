"""`GET /v1/credits`: the organization's remaining credits. Clients of every major call it at the root of the base URL,
and read errors only in the format of this surface."""

from gateway.money import format_usd
from gateway.surfaces import auth
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.shapes import named
from gateway.worker.services import Services

PATH = "/v1/credits"
ANSWER = named("CreditsLeft", balance="string", unlimited="boolean", total_used="string", totalUsed="string")


def show_credits(services: Services, inbound: Inbound) -> Outbound:
    """Show the organization's balance and lifetime spending; the latter in both spellings that clients use."""
    caller = auth.require_user_key(auth.caller_of(services, inbound))
    balance = services.billing.ledger.balance(caller.organization_id)
    used = format_usd(balance.spent_nusd)
    left = {"balance": format_usd(balance.balance_nusd), "unlimited": balance.unlimited}
    return json_reply({**left, "total_used": used, "totalUsed": used}, inbound.shown_id)
