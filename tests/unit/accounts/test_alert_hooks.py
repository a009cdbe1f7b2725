"""Names beside the ids of alerts."""

from gateway.accounts import teams
from gateway.accounts.alert_hooks import AlertHooks
from gateway.accounts.provider_keys import ProviderKeyDraft, ProviderKeys
from gateway.callers.stored_keys import mask_secret
from gateway.callers.vault import Vault


def test_alerts_name_what_they_are_about(small_company) -> None:
    company = small_company
    at = company.database, company.control
    vault = Vault(company.secrets.encryption_keys)
    keys = ProviderKeys(*at, vault)
    key = company.make_key().info.id
    team = teams.create_team(*at, company.organization_id, "Search", actor="operator").id
    drafts = ProviderKeyDraft("alpha", "sk-" + "s" * 40, label="Main"), ProviderKeyDraft("alpha", "sk-" + "t" * 40)
    labelled, unlabelled = (keys.add(company.organization_id, draft, actor="operator").id for draft in drafts)
    ids = (company.organization_id, company.project_id, key, company.member_id, team, labelled, unlabelled)
    names = AlertHooks(*at, vault).names_of(ids)
    assert [names.get(ident) for ident in ids] == [
        *("Acme", "Default", "A key", "owner@example.com", "Search", "Main"),
        mask_secret("sk-" + "t" * 40),
    ]
