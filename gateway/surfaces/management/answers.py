"""The answers of the management API. A field without a conversion is read from the attribute of the same name."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType

from gateway.limits.budgets import Status
from gateway.surfaces.web.answer_structs import Answer, JsonObject, Time, Usd

# There are no plans to buy: the operator of the installation decides what is possible.
PLAN = "self-hosted"


class DoneAnswer(Answer):
    message: str


class UserAnswer(Answer):
    id: str
    email: str
    name: str


class OrganizationAnswer(Answer):
    """`credits` is null for a visitor who may not see them."""

    columns = ("id", "status", "created_at", "name")
    id: str
    name: str
    plan: str
    status: str
    role: str
    credits: Usd | None
    leads_add_members: bool
    created_at: Time


class LimitedAnswer(Answer):
    """Limits and counters of a key, member or team."""

    id: str
    usage: Usd
    usage_limit: Usd | None
    period_usage_limit: Usd | None
    period_usage_duration_value: int | None
    period_usage_duration_unit: str | None
    period_timezone: str | None
    current_period_usage: Usd
    current_period_started_at: Time | None
    current_period_reset_at: Time | None
    alert_thresholds: Sequence[int]
    reservation: str


def limits_of(status: Status) -> dict[str, Any]:
    """Return the fields of a LimitedAnswer."""
    limits = status.limits
    period = limits.period
    return {
        "usage": status.usage_nusd,
        "usage_limit": limits.total_nusd,
        "period_usage_limit": limits.period_nusd,
        "period_usage_duration_value": period.amount if period else None,
        "period_usage_duration_unit": period.unit if period else None,
        "period_timezone": (period.zone or None) if period else None,
        "current_period_usage": status.period_usage_nusd,
        "current_period_started_at": status.period_started_us,
        "current_period_reset_at": status.period_resets_us,
        "alert_thresholds": limits.alert_at,
        "reservation": limits.reservation,
    }


class MemberAnswer(LimitedAnswer):
    """`suspended`: the identity provider that the organization requires refuses the person. `role_in` has the ids of
    the teams that the person leads and of the projects of which the person is an admin. `attributes` are those that an
    identity provider states, such as `costCenter` and `department`."""

    columns = ("id", "role", "status", "email", "user_id", "attributes")
    user_id: str
    email: str
    name: str
    role: str
    status: str
    suspended: bool
    role_in: list[str]
    attributes: Annotated[dict[str, str], Meta(examples=[{"costCenter": "4711", "department": "Research"}])]


class TeamAnswer(LimitedAnswer):
    columns = ("id", "organization_id", "member_ids", "usage_limit", "name")
    organization_id: str
    name: str
    member_ids: Sequence[str]


class OwnTeamAnswer(Answer):
    """A team of the visitor: its limits, without the spending of the other members."""

    id: str
    name: str
    usage_limit: Usd | None
    period_usage_limit: Usd | None
    period_usage_duration_value: int | None
    period_usage_duration_unit: str | None
    period_timezone: str | None


class OwnMembershipAnswer(Answer):
    member: MemberAnswer
    teams: list[OwnTeamAnswer]


class InvitationAnswer(Answer):
    id: str
    organization_id: str
    organization_name: str
    email: str
    role: str
    status: str
    invited_by: str | None
    team_id: str | None
    team_name: str | None
    role_in: list[str]
    usage_limit: Usd | None
    period_usage_limit: Usd | None
    period_usage_duration_value: int | None
    period_usage_duration_unit: str | None
    period_timezone: str | None
    created_at: Time
    expires_at: Time


class NewInvitationAnswer(InvitationAnswer):
    token: str
    link: str
    emailed: bool


class OwnCapsAnswer(Answer):
    max_keys: int | None
    max_keys_per_member: int | None


class KeyCapsAnswer(Answer):
    """The caps in force (null: none), the number of active keys, and the organization's own values."""

    columns = ("current_count", "max_keys", "max_keys_per_member")
    max_keys: int | None
    max_keys_per_member: int | None
    current_count: int
    own: OwnCapsAnswer


class PlanLimitsAnswer(Answer):
    current_count: int
    max_keys: int
    plan: str = PLAN


class RateAnswer(Answer):
    limit: int | None
    operator_limit: int | None
    in_force: int | None
    used: int | None


class OperatorRateAnswer(Answer):
    """A rate limit of the operator, or of an account in the scopes account_project and account_key. `warning` is about
    a subject that is not known."""

    columns = ("scope", "subject", "amount", "kind")
    scope: str
    subject: str
    kind: str
    amount: int
    warning: str | None = None


class RateLimitsAnswer(Answer):
    requests_per_minute: RateAnswer
    tokens_per_minute: RateAnswer
    concurrent_requests: RateAnswer


class AccessRuleAnswer(Answer):
    columns = ("id", "status", "scope", "scope_id", "rule_type", "rule_value")
    id: str
    scope: str
    scope_id: str
    rule_type: str
    rule_value: Mapping[str, Any]
    status: str
    created_at: Time


class ApiKeyAnswer(LimitedAnswer):
    """`last_used_at` is accurate to the hour; null before the first use."""

    columns = ("id", "state", "kind", "masked_token", "expires_at", "project_id", "description")
    description: str
    status: str
    state: str
    owner_active: bool
    kind: str
    masked_token: str
    project_id: str
    created_by: str
    creator: UserAnswer
    expires_at: Time | None
    last_used_at: Time | None
    created_at: Time
    updated_at: Time
    iam_rules: list[AccessRuleAnswer]


class NewApiKeyAnswer(ApiKeyAnswer):
    token: str | None


class ApiKeysAnswer(Answer):
    api_keys: list[ApiKeyAnswer]
    user_role: str
    plan_limits: PlanLimitsAnswer | UnsetType = UNSET
    next: str | UnsetType | None = UNSET


class ProviderKeyAnswer(Answer):
    columns = ("id", "provider", "status", "masked_token", "region", "base_url", "name", "max_spend", "spent")
    id: str
    organization_id: str
    provider: str
    name: str
    masked_token: str
    base_url: str
    region: str
    allowed_models: Sequence[str]
    max_spend: Usd | None
    spent: Usd
    status: str


class UsingProjectAnswer(Answer):
    id: str
    name: str
    mode: str


class UnusedProjectAnswer(UsingProjectAnswer):
    """A project that never uses the key, with the request and the operator's command that switch it."""

    switch_request: JsonObject
    switch_command: str


class NewProviderKeyAnswer(Answer):
    provider_key: ProviderKeyAnswer
    message: str
    used_by: list[UsingProjectAnswer]
    unused_by: list[UnusedProjectAnswer]
    switched: list[UsingProjectAnswer]


class KeyCheckErrorAnswer(Answer):
    code: str
    message: str
    upstream_status: int


class KeyCheckAnswer(Answer):
    ok: bool
    model: str
    latency_ms: int
    error: KeyCheckErrorAnswer | None


class CustomProviderAnswer(Answer):
    columns = ("name", "base_url", "models")
    id: str
    organization_id: str
    name: str
    provider_id: str
    base_url: str
    models: Sequence[Mapping[str, Any]]


class SkillAnswer(Answer):
    id: str
    name: str
    description: str
    enabled: bool


class WholeSkillAnswer(SkillAnswer):
    content: str
    files: Sequence[Mapping[str, Any]]


class AuditEntryAnswer(Answer):
    seq: int
    at: Time
    actor: str
    action: str
    subject: str
    detail: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]  # it was stored as JSON


class AuditPageAnswer(Answer):
    entries: list[AuditEntryAnswer]
    next: int | None


class AuditCheckAnswer(Answer):
    valid: bool
    checked: int
    problems: list[str]


class ErasureAnswer(Answer):
    """`account_deleted`: the account belonged to no other organization. `audit_entries`: entries whose text changed."""

    member_id: str
    keys: int
    audit_entries: int
    account_deleted: bool


class IdentityAnswer(Answer):
    id: str
    provider_id: str
    organization_id: str | None
    issuer: str
    email: str
    created_at: Time
    last_used_at: Time


class ProvisionedAnswer(Answer):
    user_name: str
    external_id: str
    email: str
    attributes: JsonObject


class AttributePeriodAnswer(Answer):
    """A value of an attribute, and when it held; `until` is null for the current one."""

    name: str
    value: str
    since: Time | None
    until: Time | None


class ExportedGroupAnswer(Answer):
    """A group of the person; `source` is the identity provider, or `scim`."""

    name: str
    source: str


class ExportedInvitationAnswer(Answer):
    id: str
    email: str
    role: str
    status: str
    created_at: Time


class ExportedSessionAnswer(Answer):
    agent: str
    created_at: Time
    last_used_at: Time
    expires_at: Time


class ExportedPasskeyAnswer(Answer):
    name: str
    created_at: Time
    last_used_at: Time


class ExportedApplicationAnswer(Answer):
    name: str
    api_key_id: str
    created_at: Time
    last_used_at: Time


class ExportedRaiseRequestAnswer(Answer):
    """A request of the person for more of a limit."""

    id: str
    limit_id: str
    amount: Usd
    until: Time
    note: str
    created_at: Time


class ExportedViewAnswer(Answer):
    """A view of usage that the person saved: its name and the query of the page."""

    name: str
    query: str


class ExportedPresetAnswer(Answer):
    """Settings of the playground that the person saved, as JSON."""

    name: str
    content: str


class OutcomeCounts(Answer):
    """What agents reported: counts, and seconds of active time."""

    sessions: int
    commits: int
    pull_requests: int
    lines_added: int
    lines_removed: int
    edits_accepted: int
    edits_rejected: int
    active_seconds: float


class ExportedOutcomeAnswer(OutcomeCounts):
    """What the person's agents reported on a day (UTC)."""

    date: str
    agent: str


class PersonalDataAnswer(Answer):
    """`created_at` is that of the account, `role_in` has the ids of the teams that the person leads and of the projects
    of which the person is an admin, `second_factor` is true if there is one, `audit` has the newest 1,000 entries."""

    member: MemberAnswer
    created_at: Time
    team_ids: Sequence[str]
    role_in: Sequence[str]
    attributes: Sequence[AttributePeriodAnswer]
    api_keys: Sequence[ApiKeyAnswer]
    identities: Sequence[IdentityAnswer]
    provisioned: Sequence[ProvisionedAnswer]
    groups: Sequence[ExportedGroupAnswer]
    invitations: Sequence[ExportedInvitationAnswer]
    alert_addresses: Sequence[str]
    sessions: Sequence[ExportedSessionAnswer]
    passkeys: Sequence[ExportedPasskeyAnswer]
    second_factor: bool
    applications: Sequence[ExportedApplicationAnswer]
    limit_requests: Sequence[ExportedRaiseRequestAnswer]
    views: Sequence[ExportedViewAnswer]
    presets: Sequence[ExportedPresetAnswer]
    outcomes: Sequence[ExportedOutcomeAnswer]
    audit: Sequence[AuditEntryAnswer]


class DiscountAnswer(Answer):
    columns = ("id", "organization_id", "provider", "model", "fraction", "starts_at", "ends_at")
    id: str
    organization_id: str
    provider: str
    model: str
    fraction: Annotated[str, Meta(examples=["0.2"])]
    starts_at: Time | None
    ends_at: Time | None


class LedgerEntryAnswer(Answer):
    columns = ("at", "kind", "amount", "note", "reference")
    id: str
    kind: str
    amount: Usd
    reference: str
    note: str
    at: Time


class BalanceAnswer(Answer):
    organization_id: str
    credits: Usd
    funded: Usd
    spent: Usd
    reserved: Usd
    unlimited: bool


class PostedAnswer(BalanceAnswer):
    posted: bool


class AlertAddressAnswer(Answer):
    columns = ("id", "form", "url", "events", "team", "created_at")
    id: str
    url: str
    form: str
    events: Sequence[str]
    team: str
    created_at: Time


class NewAlertAddressAnswer(AlertAddressAnswer):
    secret: str | None


class AlertTestAnswer(Answer):
    delivered: bool
    result: str


class ApplicationAnswer(Answer):
    id: str
    name: str
    client_id: str
    redirect_host: str
    scopes: Sequence[str]
    api_key_id: str
    api_key_description: str
    user_id: str
    created_at: Time
    last_used_at: Time
    expires_at: Time


# The answers about service accounts and workload identities.


class ServiceAccountAnswer(Answer):
    """`last_used_at` is accurate to some minutes; null before the first use."""

    columns = ("id", "status", "expires_at", "last_used_at", "name", "scopes")
    id: str
    organization_id: str
    name: str
    scopes: Sequence[str]
    masked_token: str
    status: str
    expires_at: Time | None
    last_used_at: Time | None
    created_by: str
    created_at: Time
    iam_rules: list[AccessRuleAnswer]


class NewServiceAccountAnswer(ServiceAccountAnswer):
    token: str | None


class WorkloadIdentityAnswer(Answer):
    """`key` is the API key with its limits, usage and access rules; its token is shown nowhere."""

    columns = ("id", "status", "project_id", "name", "issuer", "audience")
    id: str
    organization_id: str
    project_id: str
    api_key_id: str
    name: str
    issuer: str
    audience: str
    jwks_url: str
    jwks: JsonObject | None
    claims: JsonObject
    attribution: JsonObject
    status: str
    created_at: Time
    key: ApiKeyAnswer


class TokenCheckAnswer(Answer):
    """`reason` says why the token is refused; null if it is accepted."""

    accepted: bool
    identity_id: str | None
    reason: str | None
    expires_at: Time | None
    metadata: JsonObject
