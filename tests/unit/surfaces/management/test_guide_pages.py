"""The guides below `/docs`."""

import json
import re

import pytest

TOPICS = ("quickstart", "models", "api", "sdk")


@pytest.fixture
def visitor(shared_tenants):
    """A visitor without a session."""
    return shared_tenants.gateway.app.flask.test_client()


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_has_a_page_for_everyone(visitor, topic) -> None:
    answer = visitor.get(f"/docs/{topic}")
    assert answer.status_code == 200 and answer.mimetype == "text/html"
    text = answer.get_data(as_text=True)
    assert text.count("<h1>") == 1 and "http://localhost/v1" in text
    assert f'href="http://localhost/docs/{topic}" aria-current="page"' in text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_link_of_a_guide_leads_to_a_page(visitor, topic) -> None:
    links = set(re.findall(r'href="http://localhost([^"]*)"', visitor.get(f"/docs/{topic}").get_data(as_text=True)))
    assert {f"/docs/{other}" for other in TOPICS} < links
    assert {
        link: visitor.get(link).status_code for link in links if visitor.get(link).status_code not in (200, 303)
    } == {}


def test_the_request_of_the_quickstart_works(visitor, shared_tenants) -> None:
    text = visitor.get("/docs/quickstart").get_data(as_text=True)
    body = re.search(r"-d '(.*?)'</pre>", text)[1].replace("&#34;", '"')
    headers = {"Authorization": f"Bearer {shared_tenants['acme owner'].key.token}"}
    answer = visitor.post("/v1/chat/completions", json=json.loads(body), headers=headers)
    assert answer.status_code in (200, 402)  # 402: this organization has no credits


def test_an_unknown_topic_is_a_404(visitor) -> None:
    assert visitor.get("/docs/other").status_code == 404


def test_cells_of_tables_name_their_column_and_names_wrap_between_their_parts(visitor) -> None:
    """A telephone shows a row as a list; a name in a narrow column never breaks within a word."""
    text = visitor.get("/docs/guides/configuration").get_data(as_text=True)
    assert '<td data-label="Setting"><code>public_<wbr>url</code>' in text
    assert "<code>GATEWAY_<wbr>SERVER_<wbr>PUBLIC_<wbr>URL</code>" in text
    routes = visitor.get("/docs/guides/permissions").get_data(as_text=True)
    assert "<code>GET /orgs/&lt;organization_<wbr>id&gt;</code>" in routes


def test_the_lists_of_guides_name_the_readers_address(visitor) -> None:
    for page in ("/docs/guides", "/docs/guides?q=claude+code+address"):
        text = visitor.get(page, base_url="http://gateway.example").get_data(as_text=True)
        assert "http://127.0.0.1:4001" not in text
    assert "http://gateway.example stands for" in visitor.get("/docs/guides", base_url="http://gateway.example").text
