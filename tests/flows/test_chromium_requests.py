"""The requests of the console in a real Chromium: from one request of a filtered list to the next, a conversation with
its JSON behind a switch, and a request that is replayed at another model."""

import pytest
import requests
from support.chromium import MARKS, Chromium
from support.demo_sessions import TASK, add_session_of
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.watched_pages import WATCH

pytestmark = MARKS
HOSTILE = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"

ROWS = "[...document.querySelectorAll('tbody a.open')].map(one => one.href)"
NEIGHBOURS = "[...document.querySelectorAll('[data-step]')].map(one => !one.hidden)"
MODEL = "document.querySelector('.stat dd').textContent"
PRESS = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"


@pytest.fixture
def page_script() -> str:
    return WATCH


def test_a_request_leads_to_its_neighbours_in_the_list(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/logs?model=gpt-5&timeRange=30d")
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('tbody a.open').length > 2")
    first, second, *_ = browser.run(ROWS)
    browser.run("document.querySelector('tbody a.open').click()")
    browser.wait_for(f"location.href === '{first}' && {NEIGHBOURS}[1]")
    assert browser.run(NEIGHBOURS) == [False, True]
    browser.run("document.querySelector('[data-step=\"1\"]').click()")
    browser.wait_for(f"location.href === '{second}' && {NEIGHBOURS}[0]")
    assert browser.run(MODEL) == "gpt-5"
    browser.run(PRESS % "k")
    browser.wait_for(f"location.href === '{first}' && {NEIGHBOURS}[1]")


def test_the_json_of_a_conversation_is_behind_a_switch_and_changes_are_loaded(
    sandbox_gateway: LocalGateway, browser: Chromium
) -> None:
    token = add_demo_usage(sandbox_gateway)
    turns = add_session_of(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/logs/{turns[-1].request.hex()}")
    browser.wait_for("!!document.querySelector('#changes .badge')")
    assert "tool Today" in browser.run("document.querySelector('#changes').textContent")
    assert browser.run("document.title") == "Request · llmgateway"
    seen = "[...document.querySelectorAll('.readable, .raw-bodies')].map(one => one.checkVisibility())"
    assert browser.run(seen) == [True, False]
    assert TASK in browser.run("document.querySelector('.readable').innerText")
    browser.run("document.querySelector('.show-raw').click()")
    assert browser.run(seen) == [False, True]
    assert browser.run("window.violations") == []


def test_a_request_is_replayed_at_another_model_and_compared(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(sandbox_gateway)
    address, project = sandbox_gateway.address, sandbox_gateway.project_id
    session = {"Authorization": f"Bearer {token}"}
    requests.patch(f"{address}/projects/{project}", json={"retention": "retain"}, headers=session, timeout=60)
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": HOSTILE}]}
    key = {"Authorization": f"Bearer {sandbox_gateway.key}"}
    sent = requests.post(f"{address}/v1/chat/completions", json=body, headers=key, timeout=60)
    ident = sent.headers["x-request-id"]
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=address)
    browser.open(f"{address}/console/logs/{ident}/replay?model=sandbox-tools")
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('#replay button')")
    browser.run("document.querySelector('#replay button').click()")
    browser.wait_for(f"location.href.includes('/console/logs/compare?request={ident}&request=')")
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('.answers')")
    assert "Both prompts are the same." in browser.run("document.body.innerText")
    assert "onerror" in browser.run("document.querySelector('.answers').innerText")
    assert browser.run("window.harmed") is None and browser.run("window.violations") == []


TOOL_TURN = {
    "model": "sandbox-echo",
    "max_tokens": 500,
    "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    "messages": [
        {"role": "user", "content": "How is the weather in Bern?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny"}]},
    ],
}
TURNS = "[...document.querySelectorAll('.transcript .turn')].map(one => one.classList[1])"


def test_a_turn_of_an_agent_is_continued_in_the_playground_and_survives_a_reload(
    sandbox_gateway: LocalGateway, browser: Chromium
) -> None:
    token = add_demo_usage(sandbox_gateway)
    address, project = sandbox_gateway.address, sandbox_gateway.project_id
    session = {"Authorization": f"Bearer {token}"}
    requests.patch(f"{address}/projects/{project}", json={"retention": "retain"}, headers=session, timeout=60)
    key = {"Authorization": f"Bearer {sandbox_gateway.key}"}
    sent = requests.post(f"{address}/v1/messages", json=TOOL_TURN, headers=key, timeout=60)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=address)
    browser.open(f"{address}/console/playground?request={sent.headers['x-request-id']}")
    browser.wait_for("document.querySelector('#playground')?.dataset.ready === 'true'")
    assert browser.run(TURNS) == ["user", "assistant", "tool"]
    assert "weather" in browser.run("document.querySelector('#tool-list').textContent")
    # The results of tools are answered without another message.
    browser.run("document.querySelector('#composer').requestSubmit()")
    browser.wait_for(f"{TURNS}.length === 4 && !document.querySelector('#send').disabled")
    assert browser.run("document.querySelector('#mistake').hidden")
    browser.wait_for("document.querySelector('#playground').dataset.unsaved === '0'")
    assert "request=" not in browser.run("location.href")
    browser.run("location.reload()")
    browser.wait_for(f"document.querySelector('#playground')?.dataset.ready === 'true' && {TURNS}.length === 4")
    assert browser.run("window.violations") == []


def test_an_answer_is_shown_as_markdown_also_after_a_click_in_the_list(
    sandbox_gateway: LocalGateway, browser: Chromium
) -> None:
    token = add_demo_usage(sandbox_gateway)
    address, project = sandbox_gateway.address, sandbox_gateway.project_id
    session = {"Authorization": f"Bearer {token}"}
    requests.patch(f"{address}/projects/{project}", json={"retention": "retain"}, headers=session, timeout=60)
    text = f"A **bold** word, {HOSTILE} and ![pixel](https://evil.example/pixel.png)"
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": text}]}
    key = {"Authorization": f"Bearer {sandbox_gateway.key}"}
    ident = requests.post(f"{address}/v1/chat/completions", json=body, headers=key, timeout=60).headers["x-request-id"]
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=address)
    browser.open(f"{address}/console/logs")
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('tbody a.open').length > 2")
    browser.run(f"document.querySelector('tbody a.open[href*=\"{ident}\"]').click()")
    browser.wait_for("document.querySelector('.answer .said.markdown strong')?.textContent === 'bold'")
    assert browser.run("document.querySelectorAll('.talk-side img').length") == 0
    assert "onerror" in browser.run("document.querySelector('.answer').innerText")
    assert browser.run("window.harmed") is None and browser.run("window.violations") == []


@pytest.mark.parametrize(
    "text",
    [
        "'|a'.repeat(3000) + '|\\n' + '|-'.repeat(3000) + '|\\n' + '|b|\\n'.repeat(7000)",
        "('*a_'.repeat(1600) + '\\n\\n').repeat(40)",
    ],
    ids=["table", "emphasis"],
)
def test_an_answer_cannot_occupy_the_browser(sandbox_gateway: LocalGateway, browser: Chromium, text: str) -> None:
    token = add_demo_usage(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/playground")
    browser.wait_for("typeof showMarkdown === 'function'")
    browser.run("window.place = document.createElement('div'), window.began = performance.now(), 1")
    browser.run(f"showMarkdown(place, {text}), 1")
    assert browser.run("performance.now() - window.began") < 5000
    assert browser.run("place.textContent.length") > 20_000
    assert browser.run("place.querySelectorAll('*').length") < 20_000
