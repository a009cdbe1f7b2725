"""The audit log in words."""

import pytest

from gateway.surfaces.console.audit_pages import describe_action, describe_details


@pytest.mark.parametrize(
    ("action", "phrase"),
    [
        ("api_key.create", "API key created"),
        ("api_key.update_session_budget", "API key session budget updated"),
        ("identity_domain.verify", "Identity domain verified"),
        ("alert_hook.delete", "Alert webhook deleted"),
        ("organization.update_sso", "Organization single sign-on updated"),
        ("credits.post", "Credits posted"),
        ("credits.unlimited", "Unlimited spending changed"),
        ("device.deny", "Device denied"),
        ("discount.set", "Discount set"),
        ("oauth.revoke", "OAuth access revoked"),
        ("scim_token.create", "SCIM token created"),
        ("second_factor.use_recovery_code", "Recovery code used"),
        ("session.delete_others", "Other sessions ended"),
        ("sso.sign_out", "Signed out by the identity provider"),
        ("user.ask_password", "New password requested"),
    ],
)
def test_an_action_is_shown_as_a_phrase(action: str, phrase: str) -> None:
    assert describe_action(action) == phrase


def test_details_have_labels_amounts_and_names() -> None:
    detail = {
        "base_url": "https://llm.example/v1",
        "cache_enabled": False,
        "cache_ttl_s": 60,
        "session_nusd": 2_500_000_000,
        "amount_usd": "12.5",
        "team": "team_1",
        "models": ["gpt-5", "gpt-4o"],
        "kind": "customer",
        "mode": "hybrid",
        "attribution": {},
        "email": "sa_1@service-account.invalid",
        "belongs": True,
        "allow_cidrs": ["10.0.0.0/8"],
    }
    assert describe_details(detail, {"team_1": "Search"}) == (
        "base URL: https://llm.example/v1, cache enabled: no, cache lifetime in seconds: 60, session: $2.5, "
        "amount: $12.5, team: Search, models: gpt-5 gpt-4o, "
        "allows: calling models, provider keys: Own keys first, then the gateway's, added, allow networks: 10.0.0.0/8"
    )
    assert describe_details({"belongs": False, "client_id": "7"}, {}) == "removed, client ID: 7"
    assert describe_details({"kind": "user"}, {}) == "allows: calling models, signing in clients"


def test_details_without_a_value_are_left_out() -> None:
    detail = {"region": "", "max_spend": None, "models": [], "attribution": {}, "limits": "{}", "cache_ttl_s": 0}
    assert describe_details(detail, {}) == "cache lifetime in seconds: 0"
