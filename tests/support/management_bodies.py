"""Bodies for the management routes, and an object of each kind in an organization."""

import re
from typing import Any

from gateway.accounts.identities import insert_identity, list_identities
from gateway.batches.batch_table import BatchTask
from gateway.files.project_files import NewFile
from gateway.oauth.grant_values import Consent

VARIABLE = re.compile(r"<(?:path:)?(\w+)>")
BODIES = {
    "NewKey": lambda p: {"description": "x", "projectId": p.project_id},
    "KeyChange": lambda p: {"status": "inactive"},
    "LimitChange": lambda p: {"usageLimit": "1"},
    "Named": lambda p: {"name": "Taken over"},
    "OrganizationChange": lambda p: {"name": "Taken over", "leadsAddMembers": True},
    "OrganizationStatusChange": lambda p: {"status": "active"},
    "Policy": lambda p: {"requireGdpr": True},
    "NewSkill": lambda p: {"content": "---\nname: a\ndescription: b\n---\n"},
    "SkillChange": lambda p: {"enabled": False},
    "MemberChange": lambda p: {"role": "owner"},
    "NewInvitation": lambda p: {"email": "spy@example.com", "role": "owner"},
    "TeamName": lambda p: {"name": "Spies"},
    "RateChange": lambda p: {"requestsPerMinute": 1},
    "OutcomeSettingsChange": lambda p: {"comparePeople": True},
    "SettingsChange": lambda p: {"settings": {"model": "auto"}},
    "Approval": lambda p: {"userCode": "BCDF-GHJK"},
    "SessionBudgetChange": lambda p: {"sessionBudget": "1"},
    "CapChange": lambda p: {"maxKeys": 0},
    "NewProject": lambda p: {"organizationId": p.organization_id, "name": "x"},
    "ProjectSettings": lambda p: {"mode": "hybrid"},
    "NewProviderKey": lambda p: {"organizationId": p.organization_id, "provider": "openai", "token": "sk-x"},
    "ProviderKeySettings": lambda p: {"status": "inactive"},
    "Rotation": lambda p: {"token": "sk-y"},
    "CheckQuestion": lambda p: {},
    "NewCustomProvider": lambda p: {"name": "mine", "baseUrl": "https://example.com/v1"},
    "CustomProviderSettings": lambda p: {"baseUrl": "https://example.com/v1"},
    "PlacedRule": lambda p: {"scope": "organization", "scopeId": p.organization_id, **RULE},
    "KeyRule": lambda p: RULE,
    "RuleStatus": lambda p: {"status": "inactive"},
    "ChangePassword": lambda p: {"currentPassword": "x", "newPassword": "y"},
    "Token": lambda p: {"token": "llmginv_unknown"},
    "UserCode": lambda p: {"userCode": "BCDF-GHJK"},
    "NewRate": lambda p: {"scope": "model", "subject": "gpt-4o", "kind": "requests", "amount": 5},
    "NewProvider": lambda p: {"name": "x", "issuer": "https://issuer.example", "clientId": "x"},
    "ProviderChange": lambda p: {"name": "Taken over"},
    "NewDomain": lambda p: {"domain": "spies.example"},
    "Requirement": lambda p: {"required": False},
    "NewGroupRule": lambda p: {"group": f"spies of {p.user_id}", "role": "admin"},
    "GroupRuleChange": lambda p: {"role": "admin"},
    "NewGuardrail": lambda p: {"name": f"spies of {p.user_id}", "action": "log", "detectors": ["email"]},
    "GuardrailChange": lambda p: {"action": "warn"},
    "NewGuardrailException": lambda p: {"value": "anna@mail.test"},
    "ReplayBody": lambda p: {"days": 7},
    "GuardrailTest": lambda p: {"text": "anna@mail.test"},
    "RouteBody": lambda p: {"document": {"otherwise": "gpt-4o"}},
    "RouteCheckBody": lambda p: {"document": {"otherwise": "gpt-4o"}},
    "RouteSimulationBody": lambda p: {"document": {"otherwise": "gpt-4o"}},
    "PublishBody": lambda p: {},
    "PreviewedRule": lambda p: {"group": "engineers"},
    "KeyTagsBody": lambda p: {"tags": {"team": "search"}},
    "LimitBody": lambda p: {"subjects": ["organization"], "amount": "5"},
    "SimulatedLimitBody": lambda p: {"subjects": ["organization"], "amount": "5", "days": 7},
    "RaiseBody": lambda p: {"amount": "5", "until": "2099-01-01T00:00:00Z"},
    "AskingBody": lambda p: {"amount": "5", "until": "2099-01-01T00:00:00Z"},
    "NewDiscount": lambda p: {"fraction": "0.5"},
    "NewPosting": lambda p: {"amount": "5"},
    "NewScimTokenBody": lambda p: {"name": "Identity provider"},
    "NewView": lambda p: {"name": "Spies", "query": "groupBy=user", "shared": True},
    "ViewChange": lambda p: {"name": "Taken over"},
    "NewSubscription": lambda p: {"viewId": "view_" + "0" * 32, "hookId": "hook_" + "0" * 32},
    "SubscriptionChange": lambda p: {"hour": 3},
    "NewShare": lambda p: {"session": f"session-of-{p.user_id}", "projectId": p.project_id},
    "NewHook": lambda p: {"url": "https://example.com/alerts"},
    "Unlimited": lambda p: {"unlimited": False},
    "Password": lambda p: {"password": "x"},
    "Code": lambda p: {"code": "000000"},
    "NewWorkloadIdentity": lambda p: {
        "name": "x",
        "projectId": p.project_id,
        "issuer": "https://issuer.example",
        "audience": p.organization_id,
        "claims": {"sub": "x"},
    },
    "WorkloadIdentitySettings": lambda p: {"status": "inactive"},
    "TokenCheck": lambda p: {"token": "x"},
    "ServiceAccountBody": lambda p: {"name": "x", "scopes": ["keys:read"]},
    "ServiceAccountSettings": lambda p: {"status": "inactive"},
    "NewTeam": lambda p: {"name": "Spies"},
    "PasswordAndCode": lambda p: {"password": "x", "code": "000000"},
}
RULE = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}


def fill_path(path: str, ids: dict[str, str]) -> str:
    """Return the path of an operation with an id for each variable."""
    for name in VARIABLE.findall(path):
        path = path.replace(f"<{name}>", ids[name])
    return path


def title(case: Any) -> str:
    """Return the name of a test's case: an operation, or the name of a field."""
    if isinstance(case, str):
        return case
    return f"{case.method} {case.path}"


def furnish(tenants, name: str) -> dict[str, str]:
    owner = tenants[f"{name} owner"]
    org = f"/orgs/{owner.organization_id}"
    provider_key = BODIES["NewProviderKey"](owner)
    skill = tenants.ok("POST", f"{org}/skills", owner, BODIES["NewSkill"](owner))["skill"]["id"]
    rule = tenants.ok("POST", f"/keys/api/{owner.key.info.id}/iam", owner, {**RULE, "status": "inactive"})
    invited = tenants.ok("POST", f"{org}/invitations", owner, {"email": f"guest@{name}.example"})
    tenants.ok("POST", f"{org}/custom-providers", owner, BODIES["NewCustomProvider"](owner))
    grant = allow(tenants, owner)
    provider_id = tenants.ok("POST", f"{org}/identity-providers", owner, BODIES["NewProvider"](owner))[
        "identityProvider"
    ]["id"]
    tenants.ok("PATCH", f"{org}/identity-providers/{provider_id}", owner, {"status": "inactive"})
    domain = f"{name}.example"
    limit = f"{org}/limits/{name}"
    tenants.ok("PUT", limit, owner, BODIES["LimitBody"](owner))
    asked = tenants.ok("POST", f"{limit}/requests", owner, BODIES["AskingBody"](owner))["request"]
    domains = tenants.services.sso.domains
    domains.claim(owner.organization_id, provider_id, domain, verified=True, actor=owner.user_id)
    group_rule = tenants.ok("POST", f"{org}/group-rules", owner, {"group": "engineers"})["groupRule"]
    tenants.ok("PUT", f"{org}/routes/{name}", owner, BODIES["RouteBody"](owner))
    guardrail = {"name": "Cards", "action": "log", "detectors": ["payment_card"]}
    guardrail_id = tenants.ok("POST", f"{org}/guardrails", owner, guardrail)["guardrail"]["id"]
    excepted = tenants.ok("POST", f"{org}/guardrails/{guardrail_id}/exceptions", owner, {"value": "x"})["guardrail"]
    hook = tenants.ok("POST", f"{org}/alerts", owner, BODIES["NewHook"](owner))["alert"]["id"]
    view = tenants.ok("POST", f"{org}/views", owner, BODIES["NewView"](owner))["view"]["id"]
    sent = tenants.ok("POST", f"{org}/view-subscriptions", owner, {"viewId": view, "hookId": hook})["subscription"]
    log_id = retain(tenants, owner)
    return {
        "view_id": view,
        "subscription_id": sent["id"],
        "share_id": tenants.ok("POST", f"{org}/shares", owner, {"requestId": log_id})["share"]["id"],
        "guardrail_id": guardrail_id,
        "fingerprint": excepted["exceptions"][0]["fingerprint"],
        "provider_id": provider_id,
        "domain": domain,
        "group_rule_id": group_rule["id"],
        "application_id": grant,
        "place": "mcp",
        "organization_id": owner.organization_id,
        "project_id": owner.project_id,
        "key_id": owner.key.info.id,
        "member_id": tenants[f"{name} colleague"].member_id,
        "team_id": tenants.ok("POST", f"{org}/teams", owner, {"name": "T"})["team"]["id"],
        "invitation_id": invited["invitation"]["id"],
        "rule_id": rule["rule"]["id"],
        "skill_id": skill,
        "log_id": log_id,
        "batch_id": begin_batch(tenants, owner),
        "job_id": begin_batch(tenants, owner),
        "file_id": store_file(tenants, owner),
        "agent_session": f"session-of-{owner.user_id}",
        "name": "mine",
        "token_id": tenants.ok("POST", f"{org}/scim/tokens", owner, {"name": "Spare"})["token"]["id"],
        "hook_id": hook,
        "scope": "model",
        "subject": "gpt-4o",
        "identity_id": connect(tenants, owner),
        "discount_id": "disc_" + "0" * 32,
        "limit_id": name,
        "route_name": name,
        "request_id": asked["id"],
        "account_id": tenants.ok("POST", f"{org}/service-accounts", owner, {"name": "Robot", "scopes": ["keys:read"]})[
            "serviceAccount"
        ]["id"],
        "workload_identity_id": tenants.ok(
            "POST", f"{org}/workload-identities", owner, BODIES["NewWorkloadIdentity"](owner)
        )["workloadIdentity"]["id"],
        "session_id": tenants.services.management.sessions.list_sessions(owner.user_id)[0].id,
        "provider_key": tenants.ok("POST", "/keys/provider", owner, provider_key)["providerKey"]["id"],
    }


def store_file(tenants, owner) -> str:
    """Store a file in the owner's project and return its id."""
    services = tenants.services
    caller = services.accounts.authentication.caller_of_key(owner.key.info.id)
    return services.engine.files.create(caller, NewFile("a.txt", "text/plain", "user_data"), 3, [b"tea"]).id


def begin_batch(tenants, owner) -> str:
    """Begin a batch in the owner's project and return its id."""
    services = tenants.services
    caller = services.accounts.authentication.caller_of_key(owner.key.info.id)
    lines = services.engine.files.keep_pieces(caller, [b"{}"], 1 << 62)
    return services.engine.batches.create(caller, "/v1/embeddings", lines, BatchTask()).id


def connect(tenants, person) -> str:
    """Connect an identity with a person and return its id."""
    database = tenants.services.store.database
    values = ("", "unknown", "https://issuer.example", person.user_id, person.user_id, "")
    database.write(lambda: insert_identity(*values, actor=person.user_id, now=database.now_us()))
    return list_identities(database, person.user_id)[-1].id


def allow(tenants, person) -> str:
    """Authorize an application for a person and return its id."""
    consent = Consent(
        "client_x", "An editor", "http://localhost/", "localhost", "c" * 43, "mcp:tools", "http://localhost/mcp",
        person.key.info.id, person.user_id,
    )  # fmt: skip
    tenants.services.accounts.oauth.grants.allow(consent)
    return tenants.services.accounts.oauth.grants.list_grants(user_id=person.user_id)[0].id


def retain(tenants, owner) -> str:
    """Send a request with a retained payload and return its id."""
    root = tenants.open_operator()
    tenants.ok("POST", f"/orgs/{owner.organization_id}/credits", root, {"amount": "1"})
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    body = {
        "model": "sandbox-echo",
        "messages": [{"role": "user", "content": "Hello"}],
        "metadata": {"session_id": f"session-of-{owner.user_id}"},
    }
    tenants.ok("POST", "/v1/chat/completions", owner.key.token, body)
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "none"})
    tenants.services.store.journal.flush(60)
    [log] = tenants.ok("GET", f"/logs?projectId={owner.project_id}", owner)["logs"]
    return log["id"]
