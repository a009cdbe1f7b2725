"""The answers about service accounts and workload identities."""

from collections.abc import Sequence

from gateway.surfaces.answer_structs import Answer, JsonObject, Time
from gateway.surfaces.management.answers import AccessRuleAnswer, ApiKeyAnswer


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
