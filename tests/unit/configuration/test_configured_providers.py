"""Identity providers in gateway.toml and in the variable GATEWAY_IDENTITY_PROVIDERS."""

import json
import re
from pathlib import Path
from typing import Any

from gateway.configuration.configured_providers import VARIABLE, ConfiguredProvider, load_providers

SSO_PAGE = Path(__file__).resolve().parents[3] / "docs" / "sso.md"
REQUIRED = {"issuer": "https://id.example.com", "client_id": "gateway"}
ALL = {
    **REQUIRED,
    "name": "Acme",
    "client_secret": "secret",
    "groups_claim": "groups",
    "attribute_claims": {"costCenter": "cost_center"},
    "role": "developer",
    "scopes": ["offline_access"],
    "domains": ["Example.com"],
    "organizations": ["org_1"],
    "trust_email": True,
    "link_by_email": True,
    "create_people": True,
}


def load(**provider: Any) -> tuple[tuple[ConfiguredProvider, ...], list[str]]:
    return load_providers({VARIABLE: json.dumps({"acme": provider})}, {})


def test_all_documented_settings_of_an_identity_provider_are_read() -> None:
    table = SSO_PAGE.read_text().partition("| Setting |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| (`.*?`) \|", table, re.M)
    assert {name for names in documented for name in re.findall(r"\w+", names)} == set(ALL)
    (provider,), problems = load(**ALL)
    assert not problems
    read = {name: getattr(provider, name) for name in ALL}
    assert read == {
        **ALL,
        "scopes": ("openid", "offline_access"),
        "domains": ("example.com",),
        "organizations": ("org_1",),
    }


def test_a_provider_without_choices_has_the_documented_defaults() -> None:
    (provider,), problems = load(**REQUIRED)
    assert not problems
    assert provider.name == "acme" and provider.scopes == ("openid", "email", "profile")
    assert [load(**REQUIRED, role=role)[1] for role in ("", "developer", "admin")] == [[], [], []]
    assert load(**REQUIRED, role="owner")[1] == [
        "[identity_providers.acme] role: expected viewer, developer, billing, admin, or nothing"
    ]


def test_a_setting_of_the_wrong_type_and_an_unknown_one_are_named() -> None:
    for name, value in ALL.items():
        wrong = 1 if isinstance(value, bool) else True
        ((), (problem,)) = load(**{**ALL, name: wrong})
        assert problem.startswith(f"[identity_providers.acme] {name}: expected "), problem
    unknown = load(**REQUIRED, scope=[])[1]
    assert unknown == ["[identity_providers.acme] there is no setting scope; did you mean scopes?"]
    for name, value in REQUIRED.items():
        missing = [f"[identity_providers.acme] {other} is missing" for other in REQUIRED if other != name]
        assert load(**{name: value})[1] == missing
