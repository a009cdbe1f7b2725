"""Every fenced block of the documents runs: the blocks are collected from the pages and tried on one gateway.

A block of an unknown kind fails; a block that is neither a command nor a snippet says so by a mark behind the
kind (```text drawing), and `MARKS` says why.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import langchain_openai
import openai
import pytest
import yaml
from fakes.anthropic import FakeAnthropic
from fakes.openai import FakeOpenAI
from support import warm
from support.gateways import ROOT, LocalGateway, local_gateway
from support.pages import Block, blocks
from support.shared import load
from support.signed_in_owner import PASSWORD

from gateway.accounts import keys
from gateway.accounts.managed_settings import read_settings
from gateway.accounts.members import list_members
from gateway.accounts.service_accounts import ServiceAccountDraft
from gateway.accounts.teams import create_team
from gateway.catalogue import loader
from gateway.configuration import settings
from gateway.routes.route_document import read_document

TELEMETRY = ("/v1/logs", "/v1/metrics", "/v1/traces")
MARKS = {
    "drawing": "shows how parts lie to each other",
    "credentials": "its commands read a credential; tests/flows/test_guardrail_checkers.py creates each kind",
    "wire": "tests/flows/test_guardrail_checkers.py receives and answers it",
    "session": "cli/tests/test_client_documents.py compares it with the program's",
    "steps": "tests/flows/test_tutorial.py runs the blocks of its page in order",
    "agents": "cli/tests/test_client_documents.py starts the agent",
    "npm": "its packages come from npm: here its addresses are tried, `make ai-sdk` runs it as it is written",
}
BLOCKS = list(blocks())
# Files that the reader of a page has to save, with the text of the page.
SAVED = {
    "docs/routes.md": {
        "house.json": next(one.text for one in BLOCKS if (one.page, one.kind) == ("docs/routes.md", "json"))
    }
}
OURS = re.compile(r"http://(?:127\.0\.0\.1|localhost):4001")
URL = re.compile(r"http://127\.0\.0\.1:\d+[\w/]*")
PASSWORD_BLANK = '"password": "…"'
# A file of this repository among the arguments is there.
FILES = f'for word; do case $word in deploy/* | requirements*) test -e "{ROOT}/$word" || exit 1 ;; esac; done'
# Programs of others, and what stands for each: it asks the gateway as the block says that the program would.
ASK = 'exec curl -sS --fail-with-body -o /dev/null "$1/models" -H "Authorization: Bearer $2"'
PROGRAMS = {
    "make": f'exec "{shutil.which("make")}" -n -C "{ROOT}" "$@" >/dev/null',
    "curl": f'exec "{shutil.which("curl")}" --fail-with-body --max-time 20 "$@"',
    "claude": ASK.replace("$1", "$ANTHROPIC_BASE_URL/v1").replace("$2", "$ANTHROPIC_AUTH_TOKEN"),
    "codex": ASK.replace("$1", "$OF_THE_TEST/v1").replace("$2", "$LLMGATEWAY_API_KEY"),
    "aider": ASK.replace("$1", "$OPENAI_API_BASE").replace("$2", "$OPENAI_API_KEY"),
    "qwen": ASK.replace("$1", "$OPENAI_BASE_URL").replace("$2", "$OPENAI_API_KEY"),
    "gemini": ASK.replace("$1", "$GOOGLE_GEMINI_BASE_URL/v1beta").replace("$2", "$GEMINI_API_KEY"),
    "opencode": ASK.replace("$1", "$OF_THE_TEST/v1").replace("$2", "$LLMGATEWAY_API_KEY"),
    "crush": ASK.replace("$1", "$OF_THE_TEST/v1").replace("$2", "$LLMGATEWAY_API_KEY"),
    "kimi": ASK.replace("$1", "$KIMI_MODEL_BASE_URL").replace("$2", "$KIMI_MODEL_API_KEY"),
    "goose": ASK.replace("$1", "$OPENAI_HOST/v1").replace("$2", "$OPENAI_API_KEY"),
    "npx": 'exec curl -sS --fail-with-body -o /dev/null "$LLMGATEWAY_API_URL/"',
    "docker": FILES,
    "kubectl": "case $1 in create | exec) ;; *) exit 1 ;; esac",
    "helm": f'exec "{sys.executable}" "{ROOT}/tests/support/helm_command.py" "$@"',
    "sudo": FILES,
    "pre-commit": f'test -f "{ROOT}/.pre-commit-config.yaml"',
}
PRICED = """name = "Tried"
protocol = "openai"
address = "https://api.example.com/v1"
credential = ["TRIED_KEY"]

[[mappings]]
model = "gpt-4o-mini"
external_id = "tried"
"""
SECONDS = {"silent=30": "silent=1"}  # a block is tried as it is written, but for its patience


@dataclass
class Installation:
    """The gateway that every block is tried on, and what stands in blocks for what is secret."""

    gateway: LocalGateway
    session: str
    folder: Path
    spare: str  # the id of a key that no block asks with
    service_token: str
    team_id: str

    def fill(self, text: str) -> str:
        """The block with this gateway's address, key, password and session."""
        text = OURS.sub(self.gateway.address, text).replace("llmgtwy_…", self.gateway.key)
        text = (
            text.replace("llmgses_…", self.session)
            .replace("llmgsa_…", self.service_token)
            .replace("sk-…", "sk-of-the-tests")
        )
        text = text.replace("org_…", self.gateway.organization_id).replace("proj_…", self.gateway.project_id)
        text = (
            text.replace("team_…", self.team_id)
            .replace("key_…", self.spare)
            .replace(PASSWORD_BLANK, f'"password": "{PASSWORD}"')
        )
        for written, tried in SECONDS.items():
            text = text.replace(written, tried)
        assert "…" not in re.sub(r"#.*", "", text), f"no value for … in:\n{text}"
        return text

    def ask(self, url: str, body: bytes | None = None) -> int:
        """Return the status of GET, or of POST with a body of JSON."""
        headers = {"Authorization": f"Bearer {self.gateway.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("pages")
    with ExitStack() as stack:
        environment = {
            "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD,
            "LLM_OPENAI_API_KEY": "sk-upstream",
            "LLM_OPENAI_BASE_URL": stack.enter_context(FakeOpenAI()).url,
            "LLM_OPENAI_USE_RESPONSES_API": "false",
            "LLM_ANTHROPIC_API_KEY": "sk-ant-upstream",
            "LLM_ANTHROPIC_BASE_URL": stack.enter_context(FakeAnthropic()).url,
        }
        gateway = stack.enter_context(local_gateway(lambda **given: load(folder, **given), **environment))
        body = json.dumps({"email": "owner@localhost", "password": PASSWORD}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{gateway.address}/auth/sign-in/email", body, headers)
        with urllib.request.urlopen(request) as answer:
            session = json.loads(answer.read())["token"]
        programs = folder / "programs"
        programs.mkdir()
        for name, does in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{does}\n")
            (programs / name).chmod(0o755)
        draft = ServiceAccountDraft("Automation", ["keys:read"])
        account = gateway.services.management.service_accounts.create(gateway.organization_id, draft, actor="test")
        store = gateway.services.store
        team = create_team(store.database, store.control, gateway.organization_id, "Research", actor="test")
        yield Installation(gateway, session, folder, make_key(gateway), account.token, team.id)


def make_key(gateway: LocalGateway) -> str:
    stores = gateway.services.store.database, gateway.services.store.control
    owner = list_members(stores[0])[0]
    draft = keys.Draft(gateway.project_id, owner.id, "For rules")
    return keys.create(*stores, gateway.services.store.secrets.hash_keys, draft, actor="test").info.id


def run_shell(installation: Installation, block: Block, folder: Path) -> None:
    """As a script that ends at its first failure; the variables that it sets are ones that the gateway knows."""
    script = f"set -ea\n{installation.fill(block.text)}\nenv -0 > '{folder}/variables'\n"
    command, descriptor = warm.shell_command("gateway.operator.command")
    (folder / "manage").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / "manage").chmod(0o755)
    client = f'#!/bin/sh\nPYTHONPATH="{ROOT}/cli" exec "{sys.executable}" -m llmgateway_cli "$@"\n'
    (folder / "llmgateway").write_text(client)
    (folder / "llmgateway").chmod(0o755)
    for name, text in SAVED.get(block.page, {}).items():
        (folder / name).write_text(text)
    shutil.copytree(ROOT / "deploy", folder / "deploy", dirs_exist_ok=True)
    environment = {
        "PATH": f"{installation.folder / 'programs'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **(
            {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(installation.folder / "data")}
            if "./manage" in block.text
            else {}
        ),
        "HOME": str(folder),
        "LLMGATEWAY_API_KEY": installation.gateway.key,
        "API_KEY": installation.gateway.key,
        "OF_THE_TEST": installation.gateway.address,
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        pass_fds=[descriptor],
    )
    if "guardrails create" in block.text:
        remove_guardrails(installation)  # other blocks send requests
    assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    variables = dict(one.split("=", 1) for one in (folder / "variables").read_text().split("\0") if "=" in one)
    own = ("GATEWAY_", "LLM_")
    settings.load({k: v for k, v in variables.items() if k.startswith(own)})


def remove_guardrails(installation: Installation) -> None:
    store = installation.gateway.services.store

    def remove() -> None:
        store.database.execute("DELETE FROM guardrail_rule")
        store.control.bump()

    store.database.write(remove)
    store.control.confirm()


def run_python(installation: Installation, block: Block, folder: Path) -> None:
    """Run the block as a program in a separate folder; a client that the block only creates gets one request."""
    if block.text.startswith("# file:"):
        check_followed(block)
        return
    # The later blocks of a page continue with the client that an earlier block made.
    made = openai.OpenAI(base_url=installation.gateway.url, api_key=installation.gateway.key, max_retries=0)
    names: dict[str, Any] = {} if "client = " in block.text else {"client": made}
    with chdir(folder):
        exec(compile(installation.fill(block.text), str(block), "exec"), names)
    asked = {
        openai.OpenAI: lambda client: client.models.list().data,
        langchain_openai.ChatOpenAI: lambda model: model.invoke("Hello!").content,
    }
    for value in list(names.values()):
        if type(value).__name__ == "Anthropic" and hasattr(value, "messages"):
            told = [{"role": "user", "content": "Hello!"}]
            assert value.messages.create(model="claude-sonnet-4-5", max_tokens=50, messages=told).content
        for kind, ask in asked.items():
            assert not isinstance(value, kind) or ask(value)


def run_jinja(installation: Installation, block: Block, folder: Path) -> None:
    """A template of the console."""
    check_followed(block)


def run_toml(installation: Installation, block: Block, folder: Path) -> None:
    """A part of the catalogue, the operator's file, or the configuration of a client."""
    if block.text.startswith("# file:"):
        check_followed(block)
    elif block.page == "docs/catalogue.md":
        check_catalogue(folder)
    elif block.page == "docs/configuration.md":
        check_configuration(block, folder)
    elif block.page == "docs/sso.md":
        put(folder / "secrets/acme_client_secret", "k" * 40)
        put(folder / "gateway.toml", block.text)
        assert settings.load({"GATEWAY_CONFIG": str(folder / "gateway.toml")}).identity_providers
    else:
        check_addresses(installation, block, tomllib.loads(installation.fill(block.text)))


def check_followed(block: Block) -> None:
    """The test that follows the worked examples takes this block, for it takes all of its page."""
    follower = (ROOT / "tests/flows/test_contributing.py").read_text()
    assert f'Example("{Path(block.page).stem}")' in follower, f"{block}: no test follows this page"


def check_catalogue(folder: Path) -> None:
    """All TOML of the page together is a folder of the operator without a mistake."""
    for number, block in enumerate(one for one in BLOCKS if one.page == "docs/catalogue.md" and one.kind == "toml"):
        named = re.match(r"# (\S+\.toml)\n", block.text)
        if re.search(r"^prices = ", block.text, re.MULTILINE) and "[[mappings]]" not in block.text:
            for at, prices in enumerate(block.text.split("\n\n")):
                put(folder / f"providers/tried-{number}-{at}.toml", PRICED + prices)
        elif named:
            put(folder / named[1], block.text)
        elif block.text.startswith("[[models]]"):
            put(folder / "models/example.toml", block.text)
        else:
            own = "example" if block.text.startswith("name = ") else "openai"
            put(folder / f"providers/{own}.toml", block.text)
    chosen = settings.load({"GATEWAY_CATALOGUE_PATH": str(folder)})
    assert loader.find_problems(loader.sources_of(chosen)) == []
    loaded = loader.load_from(loader.sources_of(chosen))
    assert "some-model-70b" in loaded.models and "nanogpt" not in loaded.providers


def check_configuration(block: Block, folder: Path) -> None:
    """The operator's file as it is written, with the variables and files that it refers to."""
    for path in re.findall(r'"file:([^"]+)"', block.text):
        put(folder / path, "k" * 40 if "PATH" not in path else "")
    put(folder / "gateway.toml", block.text)
    named = {name: "a-value-of-the-tests-that-is-long-enough" for name in re.findall(r'"env:(\w+)"', block.text)}
    named["TEAM_DATABASE_URL"] = "postgresql://gateway:word@db.example/gateway"
    chosen = settings.load({**named, "GATEWAY_CONFIG": str(folder / "gateway.toml")})
    assert loader.find_problems(loader.sources_of(chosen)) == []
    loaded = loader.load_from(loader.sources_of(chosen))
    assert loaded.find("fast") is not None and "nanogpt" not in loaded.providers


def check_addresses(installation: Installation, block: Block, value: Any) -> None:
    """Check that a client's configuration leads to the gateway: each address in it lists models, or takes telemetry."""
    found = URL.findall(json.dumps(value))
    assert found, f"{block} names no address of the gateway"
    for url in found:
        if url.endswith(TELEMETRY):
            assert installation.ask(url, b"{}") == 200, url
        else:
            assert installation.ask(f"{url}/config" if url.endswith("/ai") else f"{url}/models") == 200, url


def run_json(installation: Installation, block: Block, folder: Path) -> None:
    if block.page == "docs/claude-code.md":
        assert json.loads(read_settings(json.loads(block.text))), block
    elif block.page == "docs/routes.md":
        assert len(read_document(json.loads(block.text)).rules) == 4
    else:
        check_addresses(installation, block, json.loads(installation.fill(block.text)))


def run_yaml(installation: Installation, block: Block, folder: Path) -> None:
    check_addresses(installation, block, yaml.safe_load(installation.fill(block.text)))


def run_script(installation: Installation, block: Block, folder: Path) -> None:
    assert block.mark == "npm"
    check_addresses(installation, block, installation.fill(block.text))


def run_text(installation: Installation, block: Block, folder: Path) -> None:
    """A directive of the sandbox in a message."""
    wanted = re.search(r"status=(\d+)", block.text)
    assert block.text.startswith("[[sandbox:") and wanted, block
    client = openai.OpenAI(base_url=installation.gateway.url, api_key=installation.gateway.key, max_retries=0)
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="sandbox-echo", messages=[{"role": "user", "content": block.text}])
    assert refused.value.status_code == int(wanted[1])


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


RUNNERS: Mapping[str, Callable[[Installation, Block, Path], None]] = {
    "sh": run_shell,
    "python": run_python,
    "toml": run_toml,
    "jinja": run_jinja,
    "json": run_json,
    "yaml": run_yaml,
    "ts": run_script,
    "text": run_text,
    "diff": lambda installation, block, folder: check_followed(block),
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_the_documents_runs(installation: Installation, block: Block, tmp_path: Path) -> None:
    assert not block.mark or block.mark in MARKS, f"{block}: {block.mark} is no mark; known: {sorted(MARKS)}"
    if block.mark in ("drawing", "session", "agents", "credentials", "wire"):
        return
    if block.mark == "steps":
        assert f'"{block.page}"' in (ROOT / "tests/flows/test_tutorial.py").read_text(), f"{block}: no test follows it"
        return
    assert block.kind in RUNNERS, f"{block}: no runner for {block.kind or 'a block without a kind'}"
    RUNNERS[block.kind](installation, block, tmp_path)


def test_every_mark_is_needed_and_every_kind_has_blocks() -> None:
    assert {block.mark for block in BLOCKS if block.mark} == set(MARKS)
    assert {block.kind for block in BLOCKS} == set(RUNNERS)


@pytest.mark.parametrize("kind", ["", "mystery"])
def test_a_block_without_a_way_to_run_it_fails(installation: Installation, tmp_path: Path, kind: str) -> None:
    with pytest.raises(AssertionError, match="no runner for"):
        test_a_block_of_the_documents_runs(installation, Block("docs/new.md", 1, kind, "", "x"), tmp_path)


def test_a_command_that_fails_fails_its_block(installation: Installation, tmp_path: Path) -> None:
    for text in ("curl -s http://127.0.0.1:4001/nowhere", "make no-such-target", "export GATEWAY_LIMTS_MAX_KEYS=5"):
        with pytest.raises((AssertionError, settings.SettingsError)):
            run_shell(installation, Block("docs/new.md", 1, "sh", "", text), tmp_path)
