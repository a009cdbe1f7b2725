"""Gemini's clients for Node (from npm, pinned) over strict fakes of three vendors."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from fakes.anthropic import FakeAnthropic
from fakes.google import FakeGoogle
from fakes.openai import FakeOpenAI
from support import npm
from support.gateways import GatewayProcess

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / "data" / "gemini-clients"
PACKAGES = {"ai": "7.0.173", "@ai-sdk/google": "4.0.121", "@google/genai": "3.1.0"}
MODELS = ("openai/gpt-4o-mini", "anthropic/claude-sonnet-5", "google-ai-studio/gemini-3.8-flash")
STEPS = ("ai", "ai stream", "genai", "genai stream")
RUN_S = 120


def test_the_clients_get_answers_of_every_vendor(tmp_path: Path) -> None:
    npm.install(CACHE, PACKAGES)
    node = npm.node(CACHE)
    shutil.copy(HERE / "drive.mjs", CACHE)
    with FakeOpenAI() as openai, FakeAnthropic() as anthropic, FakeGoogle() as google:
        gateway = GatewayProcess(
            tmp_path / "data",
            GATEWAY_BOOTSTRAP_CREDITS_USD="100",
            LLM_OPENAI_API_KEY="sk-x",
            LLM_OPENAI_BASE_URL=openai.url,
            LLM_OPENAI_USE_RESPONSES_API="false",
            LLM_ANTHROPIC_API_KEY="sk-ant-x",
            LLM_ANTHROPIC_BASE_URL=anthropic.url,
            LLM_GOOGLE_AI_STUDIO_API_KEY="AIza-x",
            LLM_GOOGLE_AI_STUDIO_BASE_URL=google.url,
        ).start()
        try:
            variables = {**os.environ, "BASE": gateway.address, "KEY": gateway.key, "MODELS": ",".join(MODELS)}
            command = [str(node), "drive.mjs"]
            done = subprocess.run(command, cwd=CACHE, env=variables, capture_output=True, text=True, timeout=RUN_S)
        finally:
            gateway.stop()
    results = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(one["model"], one["step"]): one["result"] for one in results}
    assert found == {(model, step): "Hello." for model in MODELS for step in STEPS} | {
        ("sandbox-tools", "ai tools"): "2"
    }, done.stderr
