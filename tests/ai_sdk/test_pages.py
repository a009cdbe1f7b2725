"""The snippets of the documents that need packages of npm, as they are written, with the SDK's newest major."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ai_sdk.clients import CACHE, install
from fakes.anthropic import FakeAnthropic
from support.gateways import GatewayProcess
from support.pages import Block, blocks

NEWEST, ANSWER_S = 7, 60
BLOCKS = [block for block in blocks() if block.mark == "npm"]
# A snippet that only makes a model gets this call, which uses the model.
ASK = 'import { generateText as ask } from "ai"; console.log((await ask({ model, prompt: "Hello!" })).text);\n'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with FakeAnthropic() as upstream:
        environment = {"LLM_ANTHROPIC_API_KEY": "sk-ant-upstream", "LLM_ANTHROPIC_BASE_URL": upstream.url}
        process = GatewayProcess(tmp_path_factory.mktemp("pages") / "data", **environment)
        yield process.start()
        process.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_snippet_runs_with_the_packages_that_it_names(gateway: GatewayProcess, block: Block) -> None:
    node, folder = install(CACHE), CACHE / f"major-{NEWEST}"
    text = block.text.replace("http://127.0.0.1:4001", gateway.address)
    script = folder / f"page-{block.line}.mjs"
    script.write_text(text + (ASK if "const model =" in text else "console.log(text);\n"))
    done = run(node, script, gateway.key)
    assert done.returncode == 0 and "Hello." in done.stdout, done.stdout + done.stderr


def run(node: Path, script: Path, key: str) -> subprocess.CompletedProcess[str]:
    environment = {"LLMGATEWAY_API_KEY": key, "PATH": "/usr/bin:/bin"}
    return subprocess.run([node, script], env=environment, capture_output=True, text=True, timeout=ANSWER_S)
