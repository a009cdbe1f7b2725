"""The TypeScript that the console and the documents show, run with node and the packages that it names, from npm."""

import os
import subprocess
from pathlib import Path

import pytest
from fakes.anthropic import FakeAnthropic
from support import npm
from support.client_steps import follow
from support.gateways import LocalGateway
from support.pages import Block, blocks
from support.shared import Share

from gateway.surfaces.console.client_settings import AUTO, ClientSetup, load_clients, show_client

pytestmark = [pytest.mark.extended, pytest.mark.slow]
# npm installs the newest version of each package that this machine's node runs.
OLDEST_NODE = 20
# What the printed command `npm install` must find: settings of npm, and certificates of the registry.
NPM = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NPM_CONFIG_CACHE")
CLIENTS = [client for client in load_clients() if any(file.format == "typescript" for file in client.files)]
BLOCKS = [block for block in blocks() if block.mark == "npm"]
PACKAGES = {"ai": "6.0.326", "@ai-sdk/openai-compatible": "2.0.92"}
# A snippet that only makes a model gets this call, which uses the model.
ASK = 'import { generateText as ask } from "ai"; console.log((await ask({ model, prompt: "Hello!" })).text);\n'


@pytest.fixture(scope="module")
def node() -> Path:
    return npm.machine_node(OLDEST_NODE)


@pytest.fixture
def gateway(share: Share) -> LocalGateway:
    vendor = share.fake(FakeAnthropic)
    return share.gateway({"LLM_ANTHROPIC_API_KEY": "sk-ant-upstream", "LLM_ANTHROPIC_BASE_URL": vendor.url})


def test_there_are_samples() -> None:
    assert {"node", "ai-sdk"} <= {client.id for client in CLIENTS} and len(BLOCKS) >= 2


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
def test_the_settings_run_as_they_are_copied(
    node: Path, own_gateway: LocalGateway, client: ClientSetup, tmp_path: Path
) -> None:
    """In an empty folder, with nothing installed but node and npm."""
    steps = list(show_client(client, own_gateway.address, own_gateway.key, AUTO).steps)
    known = {name: os.environ[name] for name in NPM if name in os.environ}
    followed = follow(steps, tmp_path / "home", places=f"{node.parent}:/usr/bin:/bin", known=known)
    assert "Hello." in followed.output


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_snippet_of_the_documents_runs(
    node: Path, gateway: LocalGateway, block: Block, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "snippets"
    npm.install(folder, PACKAGES)
    script = folder / f"page-{block.line}.mjs"
    text = block.text.replace("http://127.0.0.1:4001", gateway.address)
    script.write_text(text + (ASK if "const model =" in text else "console.log(text);\n"))
    environment = {"LLMGATEWAY_API_KEY": gateway.key, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([node, script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Hello." in done.stdout, done.stdout + done.stderr
