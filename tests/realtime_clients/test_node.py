"""Node's realtime clients in their own settings: OpenAI's, over `ws` and over the WebSocket of the runtime, its agents,
the AI SDK's, and bare WebSockets. Run by `make realtime` alone."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.realtime import USAGE
from realtime_clients.scene import Scene
from support import npm

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "realtime-clients"
PACKAGES = {
    "openai": "7.57.0",
    "@openai/agents-realtime": "0.20.0",
    "ws": "8.23.0",
    "zod": "4.6.7",
    "ai": "7.0.173",
    "@ai-sdk/openai": "4.0.118",
}
RUN_S = 120
ANSWER = ["response.created", "response.output_text.delta", "response.output_text.done", "response.done"]


@pytest.fixture(scope="module")
def results(scene: Scene) -> dict[str, Any]:
    """Return the result of each client."""
    npm.install(CACHE, PACKAGES)
    gateway = scene.gateway
    command = [npm.node(CACHE), HERE / "drive.mjs", CACHE, gateway.address, scene.secure, gateway.key]
    trusting = os.environ | {"NODE_EXTRA_CA_CERTS": str(scene.trusted)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_S, env=trusting)
    assert done.returncode == 0, done.stderr
    assert [session.problems for session in scene.provider.sessions if session.problems] == []
    found: dict[str, Any] = json.loads(done.stdout)
    assert {name: one["error"] for name, one in found.items() if "error" in one} == {}
    return found


@pytest.mark.parametrize("client", ["openai_ws", "openai_websocket", "openai_websocket_secret"])
def test_openais_client_reads_an_answer_and_its_usage(results, client: str) -> None:
    assert results[client]["kinds"] == ["session.created", *ANSWER] and results[client]["usage"] == USAGE


def test_openais_client_reads_a_transcript_of_a_session_that_names_its_model_later(results) -> None:
    assert results["openai_ws_transcripts"]["transcript"] == "Hi."


@pytest.mark.parametrize(("client", "protocol"), [("ws", ""), ("websocket", "realtime"), ("ai_sdk", "realtime")])
def test_a_websocket_closes_with_the_given_code(results, client: str, protocol: str) -> None:
    found = results[client]
    assert (found["kinds"], found["code"], found["protocol"]) == (["session.created", *ANSWER], 1000, protocol)


@pytest.mark.parametrize("client", ["agents", "agents_secret"])
def test_an_agent_talks_by_text_and_sound_and_counts_what_it_used(results, client: str) -> None:
    found = results[client]
    assert found["errors"] == [] and found["tokens"] == USAGE["total_tokens"]
    assert [kind for kind in found["kinds"] if kind in ANSWER] == ANSWER and "session.updated" in found["kinds"]
    assert found["kinds"][-1] == "conversation.item.input_audio_transcription.completed"
