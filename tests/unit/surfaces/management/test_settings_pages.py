"""The pages of an organization's settings and audit log: for its managers, with names instead of ids."""

import re
from functools import partial
from html import unescape

import pytest
from support.console import open_page, press_button
from support.management import Tenants

from gateway.accounts import audit
from gateway.callers import compliance as compliance_module
from gateway.clock import DAY_US
from gateway.money import NANO
from gateway.surfaces.console import audit_pages
from gateway.surfaces.console.settings_pages import FLAGS, SETS


def test_an_organization_is_renamed_and_gets_a_policy_and_rules(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["rival owner"]
        path = f"/console/settings?organization={owner.organization_id}"
        assert 'value="rival"' in open_page(tenants, owner, path)
        assert 'value="Rival &amp; sons"' in press(tenants, path, "save", name="Rival & sons")
        saved = press(tenants, path, "policy", blockApiTraining="on", allowedCountries="DE, US")
        assert 'name="blockApiTraining" checked' in saved and 'value="DE, US"' in saved
        policy = tenants.ok("GET", f"/orgs/{owner.organization_id}/policy", owner)["policy"]
        assert policy == {"blockApiTraining": True, "allowedCountries": ["DE", "US"]}
        refused = press_button(tenants, owner, path, "policy", allowedProviders="none-such")
        assert refused.status_code == 400 and "none-such" in refused.text
        assert "The rule was added" in press(
            tenants, path, "add-rule", ruleType="deny_ip_cidrs", ruleValue="10.0.0.0/8"
        )
        log = open_page(tenants, owner, "/console/audit")
        assert "Access rule created" in log and "owner<wbr>@rival.example" in log and "Rival & sons" in log
        assert "name: Rival & sons" not in log  # the subject of that change
        assert "Nothing matches" in open_page(tenants, owner, "/console/audit?q=nothing+of+the+kind")
        for word in ("owner@rival", "created", "access_rule.", "10.0.0.0/8"):
            assert "Access rule created" in open_page(tenants, owner, f"/console/audit?q={word}"), word
        assert "Organization" in open_page(tenants, owner, "/console/audit?q=sons").partition("<tbody>")[2]
        found = open_page(tenants, owner, "/console/audit?q=policy")
        assert "Organization policy updated" in found and "Access rule created" not in found
        assert "No changes yet" in open_page(tenants, owner, "/console/audit?before=1")


def test_the_newest_transactions_are_shown(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    for number in range(1, 41):
        tenants.services.billing.ledger.grant(owner.organization_id, number * NANO, f"grant {number}")
    page = open_page(tenants, owner, "/console/settings").partition("Recent transactions")[2].partition("</table>")[0]
    shown = re.findall(r">\$(\d+)\.00<", page)
    assert shown[:20] == [str(number) for number in range(40, 20, -1)] and len(shown) < 40


@pytest.mark.parametrize("text", ["{", "[" * 5_000])
def test_managed_settings_are_removed_and_must_be_json(tenants: Tenants, text: str) -> None:
    path = f"/console/settings?organization={tenants['rival owner'].organization_id}"
    assert "our-model" in press(tenants, path, "managed_settings", managed_settings='{"model": "our-model"}')
    refused = press_button(tenants, tenants["rival owner"], path, "managed_settings", managed_settings=text)
    assert refused.status_code == 400 and "not valid JSON" in refused.text
    assert "our-model" not in press(tenants, path, "remove_managed_settings")


def test_the_page_saves_every_member_of_the_policy() -> None:
    # A save replaces the whole policy, so a member without a field would be erased by it.
    assert {*FLAGS, *SETS} == set(compliance_module.FIELDS)


@pytest.mark.parametrize("member", ["name", "label", "email", "description", "host"])
def test_a_change_is_shown_with_the_name_that_its_details_have(shared_tenants: Tenants, member: str) -> None:
    owner = shared_tenants["acme owner"]
    database = shared_tenants.services.store.database
    facts = {"actor": owner.user_id, "at_us": database.now_us(), "organization_id": owner.organization_id}
    detail = {member: f"the {member} of it"}
    database.write(partial(audit.append, "alert_hook.create", f"hook_{member}", detail=detail, **facts))
    log = open_page(shared_tenants, owner, "/console/audit")
    assert f"the {member} of it" in log and f"{member}: the" not in log


def test_subjects_of_changes_are_shown_by_their_names(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    organization = owner.organization_id
    team = shared_tenants.ok("POST", f"/orgs/{organization}/teams", owner, {"name": "Research"})["team"]["id"]
    names = {
        organization: "acme",
        owner.user_id: "owner@acme.example",
        owner.member_id: "owner@acme.example",
        owner.project_id: "Default",
        owner.key.info.id: "Key of owner@acme.example",
        team: "Research",
    }
    database = shared_tenants.services.store.database
    facts = {"actor": owner.user_id, "at_us": database.now_us(), "organization_id": organization}
    for subject in names:
        database.write(partial(audit.append, "policy.check", subject, **facts))
    page = open_page(shared_tenants, owner, "/console/audit?q=policy").replace("<wbr>", "")
    assert dict(re.findall(r'title="([^"]*)">([^<]*)</td>\s*<td data-label="Details"', page)) == names


def test_older_changes_are_behind_a_link(shared_tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = shared_tenants["acme owner"]
    everything = subjects_on(open_page(shared_tenants, owner, "/console/audit"))
    monkeypatch.setattr(audit_pages, "READ", 3)
    page = open_page(shared_tenants, owner, "/console/audit")
    [older] = re.findall(r'href="([^"]+)">Older changes', page)
    following = open_page(shared_tenants, owner, f"/console/audit{older}")
    assert subjects_on(page) + subjects_on(following) == everything[:6] and len(everything) > 5


def subjects_on(page: str) -> list[str]:
    return re.findall(r'data-label="Subject" class="[^"]*" title="([^"]*)"', page)


@pytest.mark.parametrize("path", ["/console/settings", "/console/audit"])
def test_only_managers_of_the_organization_open_the_page(shared_tenants: Tenants, path: str) -> None:
    acme = shared_tenants["acme owner"].organization_id
    for who in ("acme developer", "rival owner"):
        open_page(shared_tenants, shared_tenants[who], f"{path}?organization={acme}", 403)
    open_page(shared_tenants, shared_tenants["acme admin"], f"{path}?organization={acme}")
    refused = press_button(shared_tenants, shared_tenants["acme developer"], "/console/settings", "save", name="Mine")
    assert refused.status_code == 403


def press(tenants: Tenants, path: str, action: str, **fields: str) -> str:
    answer = press_button(tenants, tenants["rival owner"], path, action, **fields)
    assert answer.status_code == 200, unescape(answer.text)
    return str(answer.text)


def test_a_scim_token_is_created_shown_once_and_revoked(open_tenants) -> None:
    with open_tenants() as tenants:
        admin = tenants["acme admin"]
        path = f"/console/settings?organization={admin.organization_id}"
        made = press_button(tenants, admin, path, "create-scim-token", scim_name="Entra ID", lifetime="90").text
        assert "is shown only now" in made and "/scim/v2</code>" in made
        token = re.findall(r'<pre id="scim-token">(llmgscim_[\w-]+)</pre>', made)[0]
        (info,) = tenants.services.accounts.scim_tokens.list_tokens(admin.organization_id)
        assert tenants.services.accounts.scim_tokens.find(token) == info and not info.by_owner
        assert round((info.expires_at_us - info.created_at_us) / DAY_US) == 90
        page = open_page(tenants, admin, path)
        assert "Entra ID" in page and "never used" in page and token not in page
        refused = press_button(tenants, admin, path, "create-scim-token", scim_name="Okta", lifetime="9999")
        assert refused.status_code == 400
        assert "was revoked" in press_button(tenants, admin, path, "revoke-scim-token", token=info.id).text
        assert tenants.services.accounts.scim_tokens.list_tokens(admin.organization_id) == []
        for days in ("365", "730"):
            made = press_button(tenants, admin, path, "create-scim-token", scim_name="Okta", lifetime=days).text
            assert "is shown only now" in made
