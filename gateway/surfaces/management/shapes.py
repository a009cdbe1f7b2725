"""JSON schemas of what the management API answers, for the API description."""

from gateway.surfaces.shapes import named, shape

USER = named("User", id="string", email="string", name="string")
SESSION = named("Session", user=USER, session=shape(id="string", createdAt="string", expiresAt="string"))
SIGNED_IN = named("SignedIn", token="string", user=USER, session=SESSION["properties"]["session"])
DONE = named("Done", message="string")
LIMITS = {
    "usage": "string",
    "usageLimit": "string?",
    "periodUsageLimit": "string?",
    "periodUsageDurationValue": "integer?",
    "periodUsageDurationUnit": "string?",
    "currentPeriodUsage": "string",
    "currentPeriodStartedAt": "string?",
    "currentPeriodResetAt": "string?",
    "alertThresholds": ["integer"],
}
ORGANIZATION = named(
    "Organization",
    id="string",
    name="string",
    plan="string",
    status="string",
    role="string",
    credits="string?",
    createdAt="string",
)
MEMBER = named(
    "Member", id="string", userId="string", email="string", name="string", role="string", status="string", **LIMITS
)
TEAM = named("Team", id="string", organizationId="string", name="string", memberIds=["string"], **LIMITS)
KEY_CAPS = named(
    "KeyCaps",
    maxKeys="integer?",
    maxKeysPerMember="integer?",
    currentCount="integer",
    own=shape(maxKeys="integer?", maxKeysPerMember="integer?"),
)
RATE = shape(limit="integer?", operatorLimit="integer?", inForce="integer?", used="integer?")
RATES = named("RateLimits", requestsPerMinute=RATE, tokensPerMinute=RATE, concurrentRequests=RATE)
PLAN_LIMITS = named("PlanLimits", currentCount="integer", maxKeys="integer", plan="string")
INVITATION = named(
    "Invitation",
    id="string",
    organizationId="string",
    organizationName="string",
    email="string",
    role="string",
    status="string",
    invitedBy="string?",
    createdAt="string",
    expiresAt="string",
)
PROJECT = named(
    "Project",
    id="string",
    organizationId="string",
    name="string",
    mode="string",
    status="string",
    cachingEnabled="boolean",
    cacheDurationSeconds="integer",
    retention="string",
    retentionDays="integer",
    cacheMarkers="string",
    routing="string",
    hasCallbackSecret="boolean",
    createdAt="string",
)
RULE = named(
    "AccessRule",
    id="string",
    scope="string",
    scopeId="string",
    ruleType="string",
    ruleValue="object",
    status="string",
    createdAt="string",
)
KEY = named(
    "ApiKey",
    id="string",
    description="string",
    status="string",
    state="string",
    ownerActive="boolean",
    kind="string",
    maskedToken="string",
    projectId="string",
    createdBy="string",
    creator=USER,
    expiresAt="string?",
    createdAt="string",
    updatedAt="string",
    iamRules=[RULE],
    **LIMITS,
)
PROVIDER_KEY = named(
    "ProviderKey",
    id="string",
    organizationId="string",
    provider="string",
    name="string",
    maskedToken="string",
    baseUrl="string",
    region="string",
    allowedModels=["string"],
    maxSpend="string?",
    spent="string",
    status="string",
)
USING_PROJECT = named("UsingProject", id="string", name="string", mode="string")
UNUSED_PROJECT = named(
    "UnusedProject", id="string", name="string", mode="string", switchRequest="object", switchCommand="string"
)
CUSTOM_PROVIDER = named(
    "CustomProvider",
    id="string",
    organizationId="string",
    name="string",
    providerId="string",
    baseUrl="string",
    models=["object"],
)
SKILL = named("Skill", id="string", name="string", description="string", enabled="boolean")
WHOLE_SKILL = named(
    "WholeSkill",
    id="string",
    name="string",
    description="string",
    enabled="boolean",
    content="string",
    files=["object"],
)
AUDIT_ENTRY = named(
    "AuditEntry", seq="integer", at="string", actor="string", action="string", subject="string", detail="object"
)
DISCOUNT = named(
    "Discount",
    id="string",
    organizationId="string",
    provider="string",
    model="string",
    fraction="string",
    startsAt="string?",
    endsAt="string?",
)
LEDGER_ENTRY = named(
    "LedgerEntry", id="string", kind="string", amount="string", reference="string", note="string", at="string"
)
BALANCE = named("Balance", credits="string", funded="string", spent="string", reserved="string", unlimited="boolean")
