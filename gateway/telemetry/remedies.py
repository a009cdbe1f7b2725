"""Remedies that an operator can apply after a failed request, by error code."""

from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError

STORE_AWAY = "the gateway's own store: see the log's line with the event database.away, and /readyz"

# The operator's counterpart of docs/errors.md. Errors that only the caller can fix have none.
REMEDIES = {
    "invalid_api_key": f"the caller's token is wrong or its key is over: {MANAGE} keys list tells the state of each",
    "insufficient_credits": f"add credits ({MANAGE} credits grant) or let the organization be unlimited "
    f"({MANAGE} credits unlimited)",
    "key_limit_reached": f"raise the key's limit: {MANAGE} limits set",
    "key_period_limit_reached": f"raise the key's limit ({MANAGE} limits set) or wait for its period's end",
    "member_limit_reached": f"raise the member's limit: {MANAGE} limits set",
    "team_limit_reached": f"raise the team's limit: {MANAGE} limits set",
    "session_budget_reached": f"a new session, or a higher budget of sessions: {MANAGE} session-budgets set",
    "run_budget_reached": f"a new run, or a higher budget of runs: {MANAGE} session-budgets set",
    "session_spending_limit_reached": "raise realtime.session_usd, or let the client open another session",
    "provider_key_limit_reached": f"raise the bound of the provider key: {MANAGE} provider-keys",
    "budget_exhausted_mid_stream": f"the answer outgrew what was left: raise the limit ({MANAGE} limits set) or add "
    f"credits ({MANAGE} credits grant)",
    "permission_denied": f"a rule or policy says no: {MANAGE} rules list",
    "model_not_allowed": f"a rule or policy says no: {MANAGE} rules list",
    "budget_in_use": "nothing, if it is rare: requests in progress have reserved the budget; else raise the limit",
    "rate_limit_exceeded": f"the caller is over its rate limit: {MANAGE} rates show",
    "project_archived": f"the key's project is archived: {MANAGE} projects list",
    "organization_blocked": f"the key's organization is blocked: {MANAGE} organizations list",
    "no_provider_credential": "set a key of a provider of this model (LLM_<PROVIDER>_API_KEY) and restart, or add one: "
    f"{MANAGE} provider-keys add",
    "host_not_allowed": "the caller used another name: GATEWAY_ALLOWED_HOSTS lists those that are answered",
    "metrics_off": "set GATEWAY_METRICS_TOKEN",
    "metrics_token": "give the scraper the token of GATEWAY_METRICS_TOKEN",
    "request_too_large": "the body is over MAX_REQUEST_BODY_MB",
    "response_storage_full": "raise responses.max_organization_mb, or let the organization delete stored responses",
    "upstream_rate_limited": "every provider that was tried limits our rate: ask them for more, or add a provider or "
    "provider key for this model",
    "overloaded": "the providers that were tried, or this process (see llmgateway_in_flight), have too much to do: add "
    "a provider, a worker or a node",
    "timeout": "no provider answered in time: see llmgateway_attempt_seconds, and timeouts in the settings",
    "all_providers_failed": "see `tried` in this line: a refused credential wants another key, an unreachable provider "
    "its address and network checked",
    "upstream_refused": "the provider refused our credential or account: check the key and its funding there",
    "workload_identity_failed": "the gateway's host got no token for the provider: the cause is in the event "
    f"workload_identity.failing and in {MANAGE} status",
    "upstream_error": "the provider failed: see its status page; llmgateway_attempts_total tells how often",
    "fetch_failed": "no connection to the provider: check its address, DNS and the outgoing network",
    "stream_truncated": "the provider ended its stream early: see llmgateway_streams_cut_total",
    "no_available_provider": "nothing answers at any provider of this model: check network and addresses",
    "service_unavailable": STORE_AWAY,
    "internal_error": "a fault of the gateway: the log has the exception under this request id",
    "interrupted": "its worker died before it was answered: see the log around that time",
}


def remedy_of(error: GatewayError) -> str:
    """Return the remedy, "" where only the caller can act."""
    return REMEDIES.get(error.code, "")
