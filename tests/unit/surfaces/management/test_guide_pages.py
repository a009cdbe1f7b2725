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
