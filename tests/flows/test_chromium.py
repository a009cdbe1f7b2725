"""A page in a real Chromium calls the gateway from another origin, and talks with it over a WebSocket. Skipped where no
Chromium is installed (Debian: `apt-get install chromium`)."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.server import FakeServer
from support.chromium import BROWSER, FLAGS, MARKS
from support.gateways import GatewayProcess

pytestmark = MARKS

PATIENCE_S = 90
PAGE = """<!doctype html><title>A page</title><script type="module">
const base = %(base)s, key = %(key)s, told = {};
const ask = (path, more) => fetch(base + path, more).catch((error) => ({ refused: String(error) }));
const post = (body, token = key) => ({
  method: "POST",
  headers: { authorization: `Bearer ${token}`, "content-type": "application/json", "x-session-id": "tab" },
  body: JSON.stringify({ model: "openai/gpt-4o-mini", messages: [{ role: "user", content: "Hi" }], ...body }),
});
try {
  const streamed = await ask("/v1/chat/completions", post({ stream: true }));
  told.type = streamed.headers.get("content-type");
  told.id = streamed.headers.get("x-request-id");
  told.provider = streamed.headers.get("x-llmgateway-provider");
  told.text = "";
  told.pieces = [];
  let rest = "";
  const begun = performance.now();
  for await (const text of streamed.body.pipeThrough(new TextDecoderStream())) {
    told.pieces.push(performance.now() - begun);
    const lines = (rest + text).split("\\n\\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") told.done = true;
      else if (line.startsWith("data: ")) told.text += JSON.parse(line.slice(6)).choices[0]?.delta.content ?? "";
    }
  }
  told.whole = (await (await ask("/chat/completions/", post({}))).json()).choices[0].message.content;
  told.wrong = (await (await ask("/v1/chat/completions", post({}, "llmgtwy_wrong"))).json()).error.code;
  told.models = (await (await ask("/v1/models")).json()).data.length;
  told.cookies = (await ask("/user/me", { credentials: "include" })).refused ?? "let in";
  const wanted = { session: { type: "realtime", model: "sandbox-realtime" } };
  const made = await (await ask("/v1/realtime/client_secrets", post(wanted))).json();
  told.spoken = await new Promise((done, failed) => {
    const protocols = ["realtime", "openai-insecure-api-key." + made.value];
    const socket = new WebSocket(base.replace("http", "ws") + "/v1/realtime?model=sandbox-realtime", protocols);
    let last = "";
    socket.onmessage = ({ data }) => {
      last = JSON.parse(data).type;
      if (last === "session.created") socket.send('{"type": "response.create"}');
      if (last === "response.done") socket.close(1000);
    };
    socket.onclose = ({ code }) => done([last, code, socket.protocol]);
    socket.onerror = () => failed(new Error("no session"));
  });
} catch (error) {
  told.error = String(error.stack);
}
await fetch("/told", { method: "POST", body: JSON.stringify(told) });
</script>"""


class Site(FakeServer):
    """The origin of the page, which stores the answers that it received."""

    page = ""
    told: dict[str, Any] | None = None

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        if environ["PATH_INFO"] == "/told":
            self.told = json.loads(environ["wsgi.input"].read())
        start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        return iter([self.page.encode()])


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Opens a URL in a new browser."""
    opened: list[subprocess.Popen[bytes]] = []

    def start(address: str) -> None:
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'browser'}", address]
        log = (tmp_path / "browser.log").open("wb")
        opened.append(subprocess.Popen(command, stdout=log, stderr=log))

    yield start
    for one in opened:
        one.kill()
        one.wait()


def test_a_page_of_another_origin_streams_a_chat(
    process: Callable[..., GatewayProcess], browse: Callable[[str], None]
) -> None:
    with FakeOpenAI() as upstream, Site() as site:
        gateway = process(LLM_OPENAI_API_KEY="sk-upstream", LLM_OPENAI_BASE_URL=upstream.url)
        upstream.script(Answer("Streamed into a page.", piece=5, gap_s=0.2), Answer("Whole."))
        site.page = PAGE % {"base": json.dumps(gateway.address), "key": json.dumps(gateway.key)}
        browse(site.url.replace("127.0.0.1", "localhost"))
        with gevent.Timeout(PATIENCE_S, AssertionError("the page told nothing")):
            while site.told is None:
                gevent.sleep(0.05)
        told = site.told
    assert "error" not in told, told["error"]
    assert (told["text"], told["whole"], told["wrong"]) == ("Streamed into a page.", "Whole.", "invalid_api_key")
    assert told["done"] and told["type"].startswith("text/event-stream")
    assert told["id"] and told["provider"] == "openai" and told["models"] > 200
    # Pieces are read as they come, not all at the end.
    assert len(told["pieces"]) >= 4 and told["pieces"][-1] - told["pieces"][0] > 500
    assert "TypeError" in told["cookies"]
    assert told["spoken"] == ["response.done", 1000, "realtime"]
