"""Forms of the console that change something: each field shows afterwards what was saved in it."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from support.console import open_page, press_button
from support.console_forms import FormField, read_form
from support.management import Tenants

pytestmark = pytest.mark.slow

# Pages with the actions of their forms.
FORMS = {
    "/console/keys/{key}?tab=settings": ("save", "limits", "rates", "session-budget"),
    "/console/people/{organization}/{member}?tab=settings": ("role", "limits"),
    "/console/teams/{organization}/{team}?tab=settings": ("rename", "limits", "managed_settings"),
    "/console/projects/{project}?tab=settings": ("save", "rates", "session-budget"),
    "/console/providers/keys": ("save", "mode"),
    "/console/models/custom": ("address",),
    "/console/automation/{organization}/accounts/{account}": ("save",),
    "/console/automation/{organization}/identities/{identity}": ("save",),
    "/console/settings": ("save", "policy", "managed_settings"),
}
# Pages with access rules, and the value of a rule.
RULES = {
    "/console/keys/{key}?tab=settings": "gpt-4o-mini",
    "/console/people/{organization}/{member}?tab=settings": "gpt-4o-mini",
    "/console/teams/{organization}/{team}?tab=settings": "gpt-4o-mini",
    "/console/automation/{organization}/accounts/{account}": "203.0.113.0/24",
    "/console/settings": "gpt-4o-mini",
}


@pytest.fixture(scope="module")
def filled(open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Iterator[tuple[Tenants, dict[str, str]]]:
    with open_tenants() as tenants:
        owner, colleague = tenants["acme owner"], tenants["acme colleague"]
        place = f"/orgs/{owner.organization_id}"

        def create(path: str, kind: str, **body: object) -> str:
            return tenants.ok("POST", f"{place}/{path}", owner, body)[kind]["id"]

        ids = {"organization": owner.organization_id, "project": owner.project_id, "member": colleague.member_id}
        ids["key"] = colleague.key.info.id
        ids["team"] = create("teams", "team", name="Research")
        ids["account"] = create("service-accounts", "serviceAccount", name="Terraform", scopes=["keys:write"])
        identity = {"name": "CI", "issuer": "https://issuer.example", "audience": "spire", "claims": {"sub": "x"}}
        ids["identity"] = create("workload-identities", "workloadIdentity", **identity, projectId=owner.project_id)
        models = [{"id": "small"}]
        provider = {"name": "own-llm", "baseUrl": "https://llm.acme.example/v1", "models": models}
        tenants.ok("POST", f"{place}/custom-providers", owner, provider)
        key = {"organizationId": owner.organization_id, "provider": "openai", "token": "sk-0123456789abcdef"}
        tenants.ok("POST", "/keys/provider", owner, key)
        yield tenants, ids


def change(name: str, shown: FormField) -> str:
    """Return another value for a field."""
    if shown.kind == "hidden":
        return shown.value
    if shown.is_box:
        return "" if shown.value else "on"
    if shown.choices:
        return next(choice for choice in reversed(shown.choices) if choice != shown.value)
    return shown.sample(name)


@pytest.mark.parametrize(("path", "action"), [(path, action) for path, actions in FORMS.items() for action in actions])
def test_a_form_shows_what_was_saved(filled: tuple[Tenants, dict[str, str]], path: str, action: str) -> None:
    tenants, ids = filled
    owner = tenants["acme owner"]
    path = path.format(**ids)
    before = read_form(open_page(tenants, owner, path), action).fields
    typed = {name: change(name, shown) for name, shown in before.items() if name != "csrf"}
    answer = press_button(tenants, owner, path, action, **{name: value for name, value in typed.items() if value})
    assert answer.status_code == 200, answer.text
    after = read_form(open_page(tenants, owner, path), action).fields
    assert {name: after[name].value for name in typed} == typed


@pytest.mark.parametrize(("path", "value"), RULES.items())
def test_a_rule_is_added_switched_off_and_removed(
    filled: tuple[Tenants, dict[str, str]], path: str, value: str
) -> None:
    tenants, ids = filled
    path = path.format(**ids)

    def press(action: str, **fields: str) -> str:
        return str(press_button(tenants, tenants["acme owner"], path, action, **fields).text)

    page = open_page(tenants, tenants["acme owner"], path)
    kind = read_form(page, "add-rule").fields["ruleType"].value
    added = press("add-rule", ruleType=kind, ruleValue=value)
    assert f"<strong>{value}</strong>" in added and ">off<" not in added
    [rule] = set(re.findall(r'name="rule" value="([^"]*)"', added))
    assert ">off<" in press("switch-rule", rule=rule, status="inactive")
    assert rule not in press("remove-rule", rule=rule)
