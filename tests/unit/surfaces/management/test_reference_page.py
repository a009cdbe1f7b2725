import re
from datetime import UTC, datetime

import pytest
from support.console import CSRF, browser_headers, open_page
from support.management import Person, Tenants

from gateway.surfaces.console.assets import load_asset
from gateway.surfaces.web import policy as policy_module


@pytest.fixture
def visitor(shared_tenants):
    """A visitor without a session."""
    return shared_tenants.gateway.app.flask.test_client()


def test_the_page_loads_the_renderer_from_this_site_only(visitor) -> None:
    answer = visitor.get("/docs")
    assert answer.mimetype == "text/html"
    text = answer.get_data(as_text=True)
    sources = re.findall(r'(?:src|href|spec-url)="([^"#]+)"', text)
    assert all(source.startswith(("/console/assets/", "http://localhost/")) for source in sources), sources
    assert visitor.get("/docs/openapi.json").mimetype == "application/json"
    scripts = [source for source in sources if source.endswith(".js")]
    assert len(scripts) == 3 and all(visitor.get(script).status_code == 200 for script in scripts)
    rules = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in rules and "script-src 'self';" in rules and "connect-src 'self'" in rules


def test_the_address_of_the_policy_leads_to_its_place(visitor) -> None:
    script = load_asset("reference.js").body.decode()
    assert f'"#{policy_module.ANCHOR}"' in script and "#overview--versions" in script
    description = visitor.get("/docs/openapi.json").get_json()["info"]["description"]
    assert "## Versions" in description


def test_the_description_of_the_page_begins_with_the_first_request(visitor) -> None:
    description = visitor.get("/docs/openapi.json").get_json()["info"]["description"]
    headings = re.findall(r"^## (.+)$", description, re.MULTILINE)
    assert headings[:3] == ["Start here", "First request", "Versions"]
    assert all(language in description for language in ("```shell", "```python", "```typescript"))
    assert "Start here" not in visitor.get("/openapi.json").get_json()["info"]["description"]


def make_key(tenants: Tenants, who: Person, **fields: str):
    csrf = CSRF.findall(open_page(tenants, who, "/console/keys/new"))[0]
    data = {"csrf": csrf, "project": who.project_id, **fields}
    return tenants.client.post("/docs/key", headers=browser_headers(who), data=data)


def test_the_key_of_the_reference_reads_the_account_and_expires(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    made = make_key(tenants, owner).json
    assert set(made) == {"token", "expiresAt"}
    assert 0 < (datetime.fromisoformat(made["expiresAt"]) - datetime.now(UTC)).total_seconds() <= 3600
    assert tenants.call("GET", "/v1/key", made["token"])[0] == 200


def test_no_other_site_and_no_stranger_makes_a_key_of_the_reference(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    assert make_key(shared_tenants, owner, csrf="0" * 64).status_code == 403
    assert make_key(shared_tenants, shared_tenants["rival owner"], project=owner.project_id).status_code == 403
    elsewhere = browser_headers(owner) | {"Origin": "https://elsewhere.example"}
    assert shared_tenants.client.post("/docs/key", headers=elsewhere, data={}).status_code == 403
    assert "token" not in (shared_tenants.client.post("/docs/key", data={}).json or {})
