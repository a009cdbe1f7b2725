"""`GET /v1/credits`: the organization's remaining credits. Clients of every major call it at the root of the base URL,
and read errors only in the format of this surface."""

from gateway.surfaces import auth
from gateway.surfaces.answer_structs import ModelApiAnswer, Usd
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.worker.services import Services

PATH = "/v1/credits"


class CreditsLeftAnswer(ModelApiAnswer):
    """The balance, and lifetime spending in both spellings that clients use."""

    balance: Usd
    unlimited: bool
    total_used: Usd
    totalUsed: Usd  # noqa: N815 - the spelling of some clients


def show_credits(services: Services, inbound: Inbound) -> Outbound:
    """Show the organization's balance and lifetime spending."""
    caller = auth.require_user_key(auth.caller_of(services, inbound))
    balance = services.billing.ledger.balance(caller.organization_id)
    answer = CreditsLeftAnswer.of(balance, total_used=balance.spent_nusd, totalUsed=balance.spent_nusd)
    return json_reply(answer.encode(), inbound.shown_id)
