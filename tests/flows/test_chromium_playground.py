"""The playground in a real Chromium: answers of two models, images, speech, tools, and code without secrets."""

from collections.abc import Callable, Iterator

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.chromium import MARKS, Chromium
from support.gateways import LocalGateway, local_gateway
from support.signed_in import sign_in

from gateway.configuration.settings import Settings

pytestmark = MARKS

HOSTILE = "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script> [link](javascript:alert(1))"
WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective));
"""
TEXTS = "[...document.querySelectorAll('.turn.assistant .text')].map(one => one.textContent)"
FIGURES = "document.querySelectorAll('.figures').length"


@pytest.fixture
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def gateway(settings: Callable[..., Settings], upstream: FakeOpenAI) -> Iterator[LocalGateway]:
    environment = {"LLM_OPENAI_BASE_URL": upstream.url, "LLM_OPENAI_API_KEY": "sk-0123456789abcdef"}
    with local_gateway(settings, **environment) as running:
        yield running


@pytest.fixture
def page_script() -> str:
    return WATCH


@pytest.fixture
def browser(browser: Chromium, gateway: LocalGateway) -> Chromium:
    sign_in(browser, gateway)
    browser.open(f"{gateway.address}/console/playground?model=gpt-4o-mini")
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('#code')?.textContent")
    return browser


def send(browser: Chromium, text: str) -> None:
    browser.run(f"document.querySelector('#prompt').value = {text!r}")
    browser.run("document.querySelector('#composer').requestSubmit()")


def test_two_models_answer_side_by_side_and_hostile_answers_are_text(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(HOSTILE, piece=3), Answer("Second thoughts.", piece=3))
    browser.run("document.querySelector('#both').click()")
    browser.run("document.querySelector('#model-1').value = 'gpt-4o-mini'")
    send(browser, "Hello <b>you</b>")
    browser.wait_for(f"{FIGURES} === 2")
    assert sorted(browser.run(TEXTS)) == sorted([HOSTILE, "Second thoughts."])
    assert (
        browser.run("document.querySelectorAll('.turn img, .turn script, .turn b, .turn a[href^=javascript]').length")
        == 0
    )
    assert browser.run("window.broken") is None and browser.run("violations") == []
    figures = browser.run("document.querySelector('.figures').textContent")
    assert "first token" in figures and "tokens" in figures and "$" in figures
    assert browser.run("document.querySelector('.figures a').pathname").startswith("/console/logs/")
    assert all(call.body["stream"] for call in upstream.calls)
    upstream.script(Answer("Again."), Answer("Again."))
    send(browser, "And now?")
    browser.wait_for(f"{FIGURES} === 4")
    assert [message["role"] for message in upstream.calls[-1].body["messages"]] == ["user", "assistant", "user"]


def test_tool_calls_wait_for_their_results(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'),)), Answer("It rains."))
    tools = '[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'
    browser.run(f"document.querySelector('#tools').value = {tools!r}")
    send(browser, "Weather in Oslo?")
    browser.wait_for("!!document.querySelector('.tool textarea')")
    browser.run("document.querySelector('.tool textarea').value = 'rain'")
    browser.run("document.querySelector('.tool').requestSubmit()")
    browser.wait_for(f"{FIGURES} === 2")
    assert browser.run(TEXTS)[-1] == "It rains."
    assert upstream.calls[-1].body["messages"][-1]["content"] == "rain"


def test_images_and_speech_are_shown_and_failures_explained(browser: Chromium) -> None:
    choose = "document.querySelector('[name=mode][value={}]').click()"
    browser.run(choose.format("image"))
    browser.run("document.querySelector('#model-0').value = 'sandbox-image'")
    send(browser, "A boat")
    browser.wait_for("!!document.querySelector('.turn.assistant img')?.naturalWidth")
    browser.run(choose.format("speech"))
    browser.run("document.querySelector('#model-0').value = 'sandbox-speak'")
    send(browser, "Hello")
    browser.wait_for("!!document.querySelector('.turn audio')?.src.startsWith('blob:')")
    browser.wait_for(
        "document.querySelector('.turn audio').readyState > 0 || !!document.querySelector('.turn audio').error"
    )
    assert browser.run("document.querySelector('.turn audio').error") is None
    browser.run(choose.format("chat"))
    browser.run("document.querySelector('#model-0').value = 'no-such-model'")
    send(browser, "Hello")
    browser.wait_for("!!document.querySelector('.transcript .problem')")
    assert "no-such-model" in browser.run("document.querySelector('.transcript .problem').textContent")
    assert browser.run("violations") == []


def test_the_code_contains_the_request_and_no_secret(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Fine."))
    send(browser, "It's me")
    browser.wait_for(f"{FIGURES} === 1")
    for language, mark in (
        ("curl", "curl http"),
        ("python", "OpenAI(base_url="),
        ("typescript", "new OpenAI({ baseURL"),
    ):
        browser.run(f"document.querySelector('[name=language][value={language}]').click()")
        code = browser.run("document.querySelector('#code').textContent")
        assert mark in code and "gpt-4o-mini" in code and "LLMGATEWAY_API_KEY" in code
    page = browser.run("document.documentElement.outerHTML + location.href + JSON.stringify({...localStorage})")
    assert "llmgtwy_" not in page
    requested = browser.run("performance.getEntriesByType('resource').map(one => one.name)")
    assert any(name.endswith("/v1/chat/completions") for name in requested) and "llmgtwy_" not in "".join(requested)
