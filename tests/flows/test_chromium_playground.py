"""The playground in a real Chromium: answers of several models as Markdown, media, tools, presets, history, code."""

import base64
import io
import json
import os
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.axe import each_view, find_barriers, load_axe, set_width
from support.chromium import MARKS, PATIENCE_S, Chromium
from support.gateways import LocalGateway, local_gateway
from support.signed_in import sign_in
from support.watched_pages import FOLDER, HOSTS, save

from gateway.configuration.settings import Settings

pytestmark = MARKS

HOSTILE = """# Title

<img src=x onerror='window.broken = 1'><script>window.broken = 1</script> <b>bold</b>

[link](javascript:window.broken=1) [fine](https://example.com/page) ![pixel](https://evil.example/pixel.png)
![drawn](data:image/svg+xml;base64,PHN2Zy8+) <https://evil.example/auto> [data](data:text/html,x)

> quoted <iframe src=https://evil.example></iframe>

| a | b |
|---|:-:|
| **1** | `<i>` |

- [x] done
- open

```python
print("</code><script>window.broken = 1</script>")
```
"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOWN = """There are **two** ways:

1. Read the whole file
2. Read it in pieces, each as it arrives

| Way | Memory | Time |
|---|--:|--:|
| Whole file | 512 MB | 1.2 s |
| In pieces | 4 MB | 1.3 s |

```python
def read(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(65536):
            yield piece
```

> Prefer pieces for anything that a caller can make large.
"""
WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective));
"""
# A picture, long enough that the code of the page reads it from its file.
PIXEL = base64.b64encode(base64.b64decode(DOT) + bytes(200)).decode()
# Takes base64, name and type of a file, a field, and what is done with both.
DROPPED = """(() => {{
    const all = new DataTransfer();
    const bytes = Uint8Array.from(atob("{}"), one => one.charCodeAt(0));
    all.items.add(new File([bytes], "{}", {{type: "{}"}}));
    const field = document.querySelector("{}");
    {};
}})()"""
TEXTS = "[...document.querySelectorAll('.turn.assistant > .text')].map(one => one.textContent)"
FIGURES = "document.querySelectorAll('.figures').length"
IDLE = "!document.querySelector('#send').disabled && document.querySelector('#stop').hidden"
SAVED = "document.querySelector('#playground').dataset.unsaved === '0'"
READY = "document.querySelector('#playground')?.dataset.ready === 'true'"


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
    open_playground(browser, gateway, "?model=gpt-4o-mini")
    return browser


def open_playground(browser: Chromium, gateway: LocalGateway, query: str = "") -> None:
    browser.open("about:blank")
    browser.open(f"{gateway.address}/console/playground{query}")
    browser.wait_for(f"document.readyState === 'complete' && {READY}")
    browser.run("document.querySelector('#settings').open = true")


def send(browser: Chromium, text: str) -> None:
    browser.wait_for(IDLE)
    browser.run(f"document.querySelector('#prompt').value = {text!r}")
    browser.run("document.querySelector('#composer').requestSubmit()")


def click(browser: Chromium, text: str, within: str = "main", index: int = 0) -> None:
    """Click the button with a text within an element."""
    found = f"[...document.querySelectorAll('{within} button')].filter(one => one.textContent === {text!r}).at({index})"
    browser.wait_for(f"!!{found}?.checkVisibility()")
    browser.run(f"{found}.click()")


def fill(browser: Chromium, selector: str, value: str, event: str = "input") -> None:
    """Set the value of the last field that a selector finds, as a person does."""
    browser.run(
        f"(() => {{ const field = [...document.querySelectorAll({selector!r})].at(-1); field.value = {value!r};"
        f"field.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )


def choose(browser: Chromium, model: str, column: int = 0) -> None:
    """Choose a model in the picker of a column."""
    if not browser.run("document.querySelector('#picker').open"):
        browser.run(f"document.querySelector('#model-{column}').click()")
    browser.wait_for("document.querySelectorAll('#picker-list li').length > 0")
    fill(browser, "#picker-search", model)
    enter = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    browser.run(f"document.querySelector('#picker-search').dispatchEvent({enter})")
    browser.wait_for("!document.querySelector('#picker').open")


def test_models_answer_side_by_side_and_hostile_markdown_is_harmless(
    browser: Chromium, gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer(HOSTILE, piece=3, thought="Let me *think*."), Answer("Second thoughts.", piece=3))
    click(browser, "Add a model")
    choose(browser, "gpt-4o-mini", 1)
    send(browser, "Hello <b>you</b>")
    browser.wait_for(f"{FIGURES} === 2 && {IDLE}")
    hostile = next(text for text in browser.run(TEXTS) if "Title" in text)
    assert "<img src=x onerror=" in hostile and "<b>bold</b>" in hostile and "<iframe" in hostile
    inside = ".turn img, .turn script, .turn b, .turn iframe, .turn svg, .turn a:not([href^='https://']):not([href*='/logs/'])"
    assert browser.run(f'document.querySelectorAll("{inside}").length') == 0
    assert browser.run("window.broken") is None and browser.run("violations") == []
    assert set(browser.run(HOSTS)) == {gateway.address.removeprefix("http://")}
    links = "[...document.querySelectorAll('.turn .text a')].map(one => one.getAttribute('href') + one.rel)"
    assert all("noopener" in link for link in browser.run(links))
    tags = "h3, td strong, td code, pre code, blockquote p, li"
    assert browser.run(f"document.querySelectorAll('.markdown :is({tags})').length") >= 7
    assert "window.broken" in browser.run("document.querySelector('.markdown pre code').textContent")
    assert browser.run("document.querySelector('.reasoning em').textContent") == "think"
    assert not browser.run("document.querySelector('.reasoning').open")
    figures = browser.run("document.querySelector('.figures').textContent")
    assert "first token" in figures and "tokens" in figures and "$" in figures
    assert browser.run("document.querySelector('.figures a').pathname").startswith("/console/logs/")
    assert all(call.body["stream"] for call in upstream.calls)
    upstream.script(Answer("Again."), Answer("Again."))
    send(browser, "And now?")
    browser.wait_for(f"{FIGURES} === 4")
    assert [message["role"] for message in upstream.calls[-1].body["messages"]] == ["user", "assistant", "user"]


def test_each_view_with_answers_and_dialogs_fits_and_is_accessible(browser: Chromium, upstream: FakeOpenAI) -> None:
    """With SCREENSHOTS=FOLDER it writes a screenshot of each view."""
    axe = load_axe()
    shown = Answer(SHOWN, thought="Two ways, a table, an example.")
    upstream.script(shown, Answer("Read it in pieces.", tools=(("get_weather", '{"city": "Oslo"}'),)))
    set_width(browser, 1400)
    click(browser, "Add a model")
    choose(browser, "gpt-4o-mini", 1)
    fill(browser, "#system", "You are a careful engineer.")
    click(browser, "Add a tool")
    click(browser, "Fill in an example", "#tool-dialog")
    click(browser, "Save", "#tool-dialog")
    send(browser, "How do I read a large file in Python without much memory?")
    browser.wait_for(f"{FIGURES} === 2 && {IDLE}")
    opened = {
        "answers": "",
        "picker": "document.querySelector('#model-0').click()",
        "tool": "document.querySelector('#tool-list button').click()",
        "code": "document.querySelector('#open-code').click()",
        "history": "document.querySelector('#open-history').click()",
        "preset": "document.querySelector('#preset-save').click()",
    }
    problems: dict[str, str] = {}
    for name, script in opened.items():
        browser.run(script)
        browser.wait_for("!!document.querySelector('dialog[open]')" if script else IDLE)
        for place in each_view(browser, f"playground-{name}", bool(FOLDER)):
            assert browser.run("document.documentElement.scrollWidth") <= browser.run("innerWidth"), place
            if FOLDER:
                save(browser, place)
            elif axe:
                found = find_barriers(browser, axe, place.endswith("dark"))
                problems |= {problem: place for problem in found if problem not in problems}
        browser.run("document.querySelector('dialog[open]')?.close()")
    assert not problems and browser.run("violations") == []


def test_finished_blocks_of_a_stream_keep_their_elements(browser: Chromium, upstream: FakeOpenAI) -> None:
    text = "First block.\n\nSecond.\n\n```js\nlet a = 1;\nlet b = 2;\n```\n\nThird.\n\nLast."
    upstream.script(Answer(text, piece=4, gap_s=0.05))
    browser.run(
        "window.kept = []; new MutationObserver(() => { const found = document.querySelector('.arriving .text p');"
        "if (found?.textContent === 'First block.' && !kept.includes(found)) kept.push(found); })"
        ".observe(document.querySelector('.transcript'), {childList: true, subtree: true, characterData: true})"
    )
    send(browser, "Write")
    browser.wait_for(f"{FIGURES} === 1 && {IDLE}")
    assert browser.run("kept.length") == 1
    assert browser.run("document.querySelector('.turn.assistant .text p') === kept[0]")
    assert browser.run("document.querySelectorAll('.turn.assistant .text > *').length") == 5


def test_an_answer_is_stopped(browser: Chromium, gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("word " * 60, gap_s=0.05))
    browser.run(
        "new MutationObserver(() => { if (document.querySelector('.arriving .text')?.textContent)"
        "document.querySelector('#stop').click(); })"
        ".observe(document.querySelector('.transcript'), {childList: true, subtree: true, characterData: true})"
    )
    send(browser, "Long")
    browser.wait_for("[...document.querySelectorAll('.turn .problem')].at(-1)?.textContent === 'Stopped.'")
    rows = "SELECT COUNT(*) FROM usage"
    with gevent.Timeout(PATIENCE_S, AssertionError("the request was not settled")):
        while not gateway.services.store.database.query_row(rows)[0]:
            gevent.sleep(0.05)


def test_messages_are_edited_answered_again_and_deleted(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("One."), Answer("Two."), Answer("Three."))
    send(browser, "First")
    browser.wait_for(f"{FIGURES} === 1 && {IDLE}")
    click(browser, "Regenerate", ".transcript")
    browser.wait_for(f"{TEXTS}[0] === 'Two.' && {IDLE}")
    assert len(upstream.calls[-1].body["messages"]) == 1
    click(browser, "Edit", ".turn.user")
    browser.run("document.querySelector('.edit textarea').value = 'Changed'")
    browser.run("document.querySelector('.edit').requestSubmit()")
    browser.wait_for(f"{TEXTS}[0] === 'Three.' && {IDLE}")
    assert upstream.calls[-1].body["messages"] == [{"role": "user", "content": "Changed"}]
    click(browser, "Delete", ".turn.assistant")
    assert browser.run("document.querySelectorAll('.turn').length") == 1


def test_conversations_survive_a_reload_in_the_browser_alone(
    browser: Chromium, gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("Kept **here**."))
    browser.run("document.querySelector('#system').value = 'Be kind'")
    send(browser, "Keep this")
    browser.wait_for(f"{FIGURES} === 1 && {IDLE} && {SAVED}")
    open_playground(browser, gateway)
    browser.wait_for("document.querySelector('.turn.assistant strong')?.textContent === 'here'")
    assert browser.run("document.querySelector('#system').value") == "Be kind"
    click(browser, "New chat")
    assert browser.run("document.querySelectorAll('.turn').length") == 0
    click(browser, "History")
    click(browser, "Keep this", "#history")
    browser.wait_for("document.querySelectorAll('.turn').length === 2")
    click(browser, "History")
    click(browser, "Delete all", "#history")
    browser.wait_for("!document.querySelector('#history-none').hidden")
    assert browser.run("document.querySelectorAll('.turn').length") == 0


def test_a_long_conversation_begins_with_its_newest_messages(browser: Chromium, gateway: LocalGateway) -> None:
    said = [{"role": ("user", "assistant")[place % 2], "content": f"Message {place}"} for place in range(3_000)]
    seed = json.dumps({"model": "gpt-4o-mini", "messages": [*said, {"role": "user", "content": "And now?"}]})
    # The page as it arrives with a request of the log.
    browser.ask("Network.enable")
    browser.ask("Page.enable")
    # Before the deferred scripts of the page.
    fill = "const seed = document.getElementById('seed'); if (seed) seed.value = %s;"
    script = f"document.onreadystatechange = () => {{ {fill} }};"
    browser.ask("Page.addScriptToEvaluateOnNewDocument", source=script % json.dumps(seed))
    open_playground(browser, gateway)
    assert browser.run("document.querySelectorAll('.transcript .turn').length") < 100
    assert "Message 2999" in browser.run("document.querySelector('.transcript .turn:last-child').textContent")
    click(browser, "Show 2920 earlier messages")
    browser.wait_for("document.querySelectorAll('.transcript .turn').length === 3000")
    assert browser.run("document.querySelectorAll('.earlier-turns').length") == 0


def test_the_keyboard_keeps_its_place_when_messages_are_edited(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("First."), Answer("Second."))
    send(browser, "Hello")
    browser.wait_for(f"{FIGURES} === 1 && {IDLE}")
    click(browser, "Edit", ".turn.user")
    pressed = "new KeyboardEvent('keydown', {key: '%s', ctrlKey: %s, bubbles: true, cancelable: true})"
    browser.run(f"document.activeElement.dispatchEvent({pressed % ('Escape', 'false')})")
    browser.wait_for("!document.querySelector('form.edit')")
    assert browser.run("document.activeElement.getAttribute('aria-label')") == "Edit the message"
    browser.run("document.activeElement.click()")
    fill(browser, "form.edit textarea", "Hello again")
    browser.run(f"document.activeElement.dispatchEvent({pressed % ('Enter', 'true')})")
    browser.wait_for(f"{TEXTS}.at(-1) === 'Second.' && {IDLE}")
    assert browser.run("document.activeElement.className") == "transcript"
    assert upstream.calls[-1].body["messages"][-1]["content"] == "Hello again"


def test_tools_and_schemas_have_forms_and_calls_wait_for_their_results(browser: Chromium, upstream: FakeOpenAI) -> None:
    click(browser, "Add a tool")
    browser.run("document.querySelector('#tool-name').value = 'not a name'")
    click(browser, "Save", "#tool-dialog")
    assert "letters" in browser.run("document.querySelector('#tool-problem').textContent")
    click(browser, "Fill in an example", "#tool-dialog")
    assert browser.run("[...document.querySelectorAll('#tool-schema .property-name')].map(one => one.value)") == [
        "city",
        "unit",
    ]
    click(browser, "Add a parameter", "#tool-dialog")
    click(browser, "Save", "#tool-dialog")
    assert "no name" in browser.run("document.querySelector('#tool-problem').textContent")
    fill(browser, "#tool-schema .property-name", "days")
    click(browser, "Save", "#tool-dialog")
    browser.wait_for("!document.querySelector('#tool-dialog').open")
    fill(browser, "#answer-kind", "json_schema", "change")
    click(browser, "Edit the schema")
    click(browser, "Fill in an example", "#schema-dialog")
    click(browser, "Save", "#schema-dialog")
    upstream.script(Answer(tools=(("get_weather", '{"city": "Oslo"}'),)), Answer("It rains."))
    send(browser, "Weather in Oslo?")
    browser.wait_for("!!document.querySelector('.tool textarea')")
    [tool] = upstream.calls[-1].body["tools"]
    assert tool["function"]["name"] == "get_weather"
    assert set(tool["function"]["parameters"]["properties"]) == {"city", "unit", "days"}
    assert tool["function"]["parameters"]["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    format_ = upstream.calls[-1].body["response_format"]
    assert format_["json_schema"]["schema"]["required"] == ["title", "tags"]
    assert '"city": "Oslo"' in browser.run("document.querySelector('.call pre').textContent")
    browser.run("document.querySelector('.tool textarea').value = 'rain'")
    browser.run("document.querySelector('form.tool').requestSubmit()")
    browser.wait_for(f"{FIGURES} === 2")
    assert browser.run(TEXTS)[-1] == "It rains."
    assert upstream.calls[-1].body["messages"][-1]["content"] == "rain"


def test_presets_are_saved_used_and_deleted(browser: Chromium, gateway: LocalGateway) -> None:
    browser.run("document.querySelector('#system').value = 'Answer in verse'")
    browser.run("document.querySelector('[data-param=temperature]').value = '0.3'")
    click(browser, "Save…")
    browser.run("document.querySelector('#preset-name').value = 'Poet'")
    click(browser, "Save", "#preset-dialog")
    browser.wait_for("!document.querySelector('#preset-dialog').open")
    open_playground(browser, gateway, "?model=sandbox-echo")
    browser.wait_for("document.querySelectorAll('#preset option').length === 2")
    fill(browser, "#preset", browser.run("document.querySelectorAll('#preset option')[1].value"), "change")
    assert browser.run("document.querySelector('#system').value") == "Answer in verse"
    assert browser.run("document.querySelector('#model-0').dataset.model") == "gpt-4o-mini"
    assert browser.run("document.querySelector('[data-param=temperature]').value") == "0.3"
    click(browser, "Delete", ".play-settings")
    browser.wait_for("document.querySelectorAll('#preset option').length === 1")


def test_the_picker_searches_and_shows_prices_context_and_abilities(browser: Chromium) -> None:
    browser.run("document.querySelector('#model-0').click()")
    browser.wait_for("document.querySelectorAll('#picker-list li').length > 0")
    rows = browser.run("[...document.querySelectorAll('#picker-list li')].map(one => one.textContent)")
    assert any(row.startswith("Auto") for row in rows) and any(row.startswith("Smart") for row in rows)
    fill(browser, "#picker-search", "gpt-4o-mini")
    row = browser.run("document.querySelector('#picker-list li').textContent")
    assert "$0.15 in" in row and "$0.60 out" in row and "128k context" in row and "Vision" in row
    assert browser.run("document.querySelector('#picker-search').getAttribute('aria-activedescendant')")
    choose(browser, "openai/gpt-4o-mini")
    assert browser.run("document.querySelector('#model-0').dataset.model") == "openai/gpt-4o-mini"


def write_wav() -> bytes:
    """Return half a second of silence."""
    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(8000))
    return written.getvalue()


def test_pictures_speech_sound_and_video_are_shown_and_failures_explained(browser: Chromium) -> None:
    mode = "document.querySelector('[name=mode][value={}]').click()"
    browser.run(mode.format("image"))
    choose(browser, "sandbox-image")
    send(browser, "A boat")
    browser.wait_for("!!document.querySelector('.turn.assistant img')?.naturalWidth")
    browser.run(mode.format("speech"))
    choose(browser, "sandbox-speak")
    send(browser, "Hello")
    browser.wait_for("!!document.querySelector('.turn audio')?.src.startsWith('blob:')")
    browser.wait_for(
        "document.querySelector('.turn audio').readyState > 0 || !!document.querySelector('.turn audio').error"
    )
    assert browser.run("document.querySelector('.turn audio').error") is None
    browser.run(mode.format("transcription"))
    choose(browser, "sandbox-transcribe")
    sound = base64.b64encode(write_wav()).decode()
    attach = "field.files = all.files; field.dispatchEvent(new Event('change', {bubbles: true}))"
    browser.run(DROPPED.format(sound, "said.wav", "audio/wav", "#files", attach))
    browser.wait_for("document.querySelectorAll('#attached li').length === 1")
    send(browser, "")
    browser.wait_for(f"{FIGURES} === 1 && {IDLE}")
    assert browser.run(TEXTS)[-1]
    browser.run(mode.format("video"))
    choose(browser, "sandbox-film")
    send(browser, "A kettle boils.")
    browser.wait_for("!!document.querySelector('.turn progress') || !!document.querySelector('.turn video')")
    assert browser.run("document.querySelector('.panes').scrollWidth <= document.querySelector('.panes').clientWidth")
    browser.run(mode.format("chat"))
    choose(browser, "no-such-model")
    send(browser, "Hello")
    browser.wait_for("!!document.querySelector('.transcript .problem')")
    assert "no-such-model" in browser.run("document.querySelector('.transcript .problem').textContent")
    assert browser.run("violations") == []


def test_a_pasted_picture_is_sent_with_the_message(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A dot."))
    paste = "field.dispatchEvent(new ClipboardEvent('paste', {clipboardData: all, bubbles: true}))"
    browser.run(DROPPED.format(PIXEL, "dot.png", "image/png", "#prompt", paste))
    browser.wait_for("document.querySelectorAll('#attached li img').length === 1")
    send(browser, "Describe")
    browser.wait_for(f"{FIGURES} === 1")
    text, image = upstream.calls[-1].body["messages"][0]["content"]
    assert text["text"] == "Describe" and image["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert browser.run("document.querySelectorAll('.turn.user img').length") == 1


def test_the_code_works_as_it_is_copied(
    browser: Chromium, gateway: LocalGateway, upstream: FakeOpenAI, tmp_path: Path
) -> None:
    pixel = base64.b64decode(PIXEL)
    (tmp_path / "a dot's.png").write_bytes(pixel)
    paste = "field.dispatchEvent(new ClipboardEvent('paste', {clipboardData: all, bubbles: true}))"
    browser.run(DROPPED.format(PIXEL, "a dot's.png", "image/png", "#prompt", paste))
    browser.wait_for("document.querySelectorAll('#attached li img').length === 1")
    fill(browser, "#extra", '{"user": "ann"}')
    fill(browser, "#prompt", "Say \"$HOME `id` \\\\n''\" in ☃")
    browser.run("document.querySelector('#stream').click()")
    click(browser, "Code")
    environment = {**os.environ, "LLMGATEWAY_API_KEY": gateway.key}
    commands = {"curl": ["bash", "-c"], "python": [sys.executable, "-c"]}
    bodies = []
    for language, command in commands.items():
        browser.run(f"document.querySelector('[name=language][value={language}]').click()")
        code = browser.run("document.querySelector('#code').textContent")
        upstream.script(Answer("It works."))
        run = subprocess.run(
            [*command, code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert "It works." in run.stdout, (code, run.stdout, run.stderr)
        bodies.append(upstream.calls[-1].body)
    text, image = bodies[0]["messages"][0]["content"]
    assert text["text"] == browser.run("document.querySelector('#prompt').value") and "$HOME" in text["text"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert bodies[0] == bodies[1] and bodies[0]["user"] == "ann"


def test_the_code_contains_the_request_and_no_secret(browser: Chromium, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Fine."))
    send(browser, "It's me")
    browser.wait_for(f"{FIGURES} === 1")
    click(browser, "Code")
    for language, mark in (
        ("curl", "curl "),
        ("python", "OpenAI(base_url="),
        ("typescript", "new OpenAI({ baseURL"),
    ):
        browser.run(f"document.querySelector('[name=language][value={language}]').click()")
        code = browser.run("document.querySelector('#code').textContent")
        assert mark in code and "gpt-4o-mini" in code and "LLMGATEWAY_API_KEY" in code
    page = browser.run(
        "document.documentElement.outerHTML + location.href + JSON.stringify({...localStorage, ...sessionStorage})"
    )
    assert "llmgtwy_" not in page and "llmgcus_" not in page
    requested = browser.run("performance.getEntriesByType('resource').map(one => one.name)")
    assert any(name.endswith("/v1/chat/completions") for name in requested) and "llmg" not in "".join(requested)
    assert "llmg" not in json.dumps(upstream.calls[-1].body)
