"""A newcomer with a clone of the checkout and nothing else does what the pages say, character by character.

`make serve` installs into the clone, so no library of the tests can be imported there. Each text that README.md,
docs/start.md, the banner and the console offer for copying is executed in a shell, with the address and key as printed.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.openai import FakeOpenAI
from support.client_steps import follow, read_clients
from support.newcomer import Newcomer
from support.newcomer_commands import CLIENT, MANAGE
from support.pages import blocks, spans
from support.plain_browser import PlainBrowser

pytestmark = [pytest.mark.extended, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
EMBEDDING = {"model": "sandbox-embed", "input": "Tea"}
PASSWORD = "a-long-password-0123456789"
PROVIDER_KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz"
PACKAGES = ("openai", "anthropic")
# Texts of the pages that are not executed here, with the place where they are.
ELSEWHERE = {
    "make serve    # install": "the fixture types the first line; the second is how this test runs",
    "docker compose": "tests/soak/test_container.py",
}
# Commands of the pages that would start a second server: the environment that they set is read instead.
SECOND_START = re.compile(r"^(export )?OPENAI_API_KEY=")


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory, provider: FakeOpenAI) -> Iterator[Newcomer]:
    """The clone after `make serve`, and an environment with the SDKs that the pages name, as a person has one."""
    folder = tmp_path_factory.mktemp("newcomer")
    own = folder / "catalogue" / "providers" / "openai.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'address = "{provider.url}"\n')
    found = Newcomer.begin(
        folder, GATEWAY_CATALOGUE_PATH=str(folder / "catalogue"), GATEWAY_ALLOW_PRIVATE_UPSTREAMS="true"
    )
    with found.serving:
        found.clients = folder / "clients"
        own = found.environment
        subprocess.run(["python3", "-m", "venv", str(found.clients)], env=own, check=True)
        pip = [str(found.clients / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], env=own, check=True, capture_output=True)
        yield found


@pytest.fixture(scope="module")
def owner(newcomer: Newcomer) -> PlainBrowser:
    """The first owner, signed in by the link of the banner."""
    link = re.findall(r"(http://\S+/console/welcome\?token=\S+)", newcomer.banner)
    assert link, newcomer.banner
    browser = newcomer.browse()
    browser.open(link[0])
    browser.open("/console/welcome", {})
    assert browser.url.endswith("/console/start"), browser.url
    return browser


def in_client_environment(newcomer: Newcomer, text: str, **more: str) -> str:
    path = f"{newcomer.clients}/bin:{newcomer.environment['PATH']}"
    return newcomer.shell(text, **{"PATH": path, **more})


def test_nothing_but_what_make_serve_installs_is_there(newcomer: Newcomer) -> None:
    for library in ("pytest", "openai", "hypothesis", "httpx", "ruff"):
        newcomer.shell(f"! .venv/bin/python -c 'import {library}' 2>/dev/null")


def test_the_banners_request_is_answered_as_it_is_copied(newcomer: Newcomer) -> None:
    text = newcomer.banner.partition("\nTry:\n")[2].partition("}'\n")[0] + "}'"
    printed = newcomer.shell(text, LLMGATEWAY_API_KEY="")
    assert "data: [DONE]" in printed, printed
    pieces = re.findall(r'"content": ?"([^"]*)"', printed)
    assert "Hello!" in "".join(pieces), printed


def test_the_banners_commands_run(newcomer: Newcomer) -> None:
    """`<text>` and `<usd>` stand for what a person enters."""
    commands = re.findall(r"\./manage [a-z-]+(?: [a-z<>@.-]+)*", newcomer.banner)
    assert {command.split()[1] for command in commands} >= {"credits", "members"}
    for command in commands:
        if "set-password" not in command:
            newcomer.shell(command.rstrip(".").replace("<text>", "CI").replace("<usd>", "5"))


def test_a_password_is_asked_for_and_not_shown(newcomer: Newcomer) -> None:
    with newcomer.terminal("./manage", "members", "set-password", "owner@localhost") as terminal:
        terminal.answer("assword", PASSWORD)
        terminal.answer("epeat", PASSWORD)
        status, text = terminal.end()
    assert status == 0 and PASSWORD not in text, text
    browser = newcomer.browse()
    browser.submit("/console/login", "", email="owner@localhost", password=PASSWORD)
    assert not browser.url.endswith("/login"), browser.url


def stub(folder: Path, *names: str) -> str:
    """Make programs that only record how they were started, and return their folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text('#!/bin/sh\nenv -0 > "$RECORDED"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def test_every_block_of_the_first_pages_is_executed(newcomer: Newcomer, tmp_path: Path) -> None:
    done = 0
    stubs = stub(tmp_path / "programs", "claude")
    path = f"{stubs}:{newcomer.environment['PATH']}"
    recorded = tmp_path / "recorded"
    for block in blocks():
        if block.page not in ("README.md", "docs/start.md"):
            continue
        text = newcomer.as_printed(block.text)
        if any(text.startswith(begin) for begin in ELSEWHERE):
            continue
        done += 1
        if block.kind == "python":
            file = tmp_path / "main.py"
            file.write_text(text)
            assert "Hello!" in in_client_environment(newcomer, f"python {file}"), str(block)
        elif SECOND_START.match(text):
            checked = text.replace("make serve", "./manage serve-info")
            assert "Providers with a key: openai" in newcomer.shell(checked), str(block)
        else:
            assert block.kind == "sh", f"{block}: nothing executes this block"
            newcomer.shell(f"set -e\n{text}", PATH=path, RECORDED=str(recorded))
    assert done >= 6
    variables = dict(line.split("=", 1) for line in recorded.read_text().split("\0")[:-1])
    check_messages(newcomer, variables["ANTHROPIC_BASE_URL"], variables["ANTHROPIC_AUTH_TOKEN"])


def check_messages(newcomer: Newcomer, address: str, token: str) -> None:
    """Send what Claude Code sends with these variables, with its vendor's SDK."""
    code = (
        "import anthropic; client = anthropic.Anthropic(); "
        "answer = client.messages.create(model='auto', max_tokens=99, messages=[{'role': 'user', 'content': 'Hi!'}]); "
        "print(answer.content[0].text)"
    )
    printed = in_client_environment(
        newcomer, f"python -c {shlex.quote(code)}", ANTHROPIC_BASE_URL=address, ANTHROPIC_AUTH_TOKEN=token
    )
    assert "Hi!" in printed


def test_every_command_in_the_text_of_the_first_pages_runs(newcomer: Newcomer) -> None:
    done = set()
    for name in ("README.md", "docs/start.md"):
        for text in spans(ROOT / name):
            if text.startswith(("./manage", "./llmgateway")) and "set-password" not in text:
                newcomer.shell(text if " " in text else f"{text} --help")
                done.add(text)
            if text.startswith("GET /v1"):
                address = newcomer.address + text.removeprefix("GET ")
                models = newcomer.shell(f"curl -sf '{address}' -H \"Authorization: Bearer $LLMGATEWAY_API_KEY\"")
                assert json.loads(models)["data"], text
                done.add(text)
    assert len(done) >= 5, done


def test_the_client_installs_alone(newcomer: Newcomer) -> None:
    """`pip install ./cli`, in an environment without the server."""
    in_client_environment(newcomer, "pip install -q ./cli")
    path = f"{newcomer.clients}/bin:/usr/bin:/bin"
    assert "gpt-4o-mini" in newcomer.shell("cd / && llmgateway models -s gpt-4o-mini", PATH=path)
    assert newcomer.shell("cd / && llmgateway chat Hello", PATH=path)


# Programs that are recorded instead of run, if not the client's id. tests/flows/test_typescript_samples.py runs npm.
PROGRAMS = {"curl": (), "python": (), "mcp-claude": ("claude",), "node": ("npm", "npx"), "ai-sdk": ("npm", "npx")}


def follow_clients(newcomer: Newcomer, page: str, key: str, home: Path) -> None:
    """Follow the settings of each client: those that are installed answer, the others are started with them."""
    clients = read_clients(page)
    assert len(clients) > 15
    home.mkdir()
    for client, steps in clients.items():
        assert steps, client
        for step in steps:
            step.text = step.text.replace("llmgtwy_…", key)
        followed = follow(
            steps, home / client, *PROGRAMS.get(client, (client,)), places=f"{newcomer.clients}/bin:/usr/bin:/bin"
        )
        texts = json.dumps([followed.values, followed.variables, followed.arguments, [step.text for step in steps]])
        assert ("{{" not in texts and key in texts) or client == "mcp-code", client
        assert newcomer.address in texts or client == "goose", client
        if client in ("curl", "python"):
            assert "Hello!" in followed.output, client
        if client == "claude":
            check_messages(
                newcomer, followed.variables["ANTHROPIC_BASE_URL"], followed.variables["ANTHROPIC_AUTH_TOKEN"]
            )
        for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "KIMI_MODEL_BASE_URL"):
            if variable in followed.variables:
                address = followed.variables[variable]
                newcomer.shell(f"curl -sf {address}/models -H 'Authorization: Bearer {key}'")


def test_the_settings_of_the_key_page_work_as_they_are_copied(
    newcomer: Newcomer, owner: PlainBrowser, tmp_path: Path
) -> None:
    page = owner.submit("/console/keys/new", "create", description="Mine")
    (key,) = owner.texts("token")
    follow_clients(newcomer, page, key, tmp_path / "home")


def test_the_settings_of_the_set_up_page_work_as_they_are_copied(
    newcomer: Newcomer, owner: PlainBrowser, tmp_path: Path
) -> None:
    follow_clients(newcomer, owner.open("/console/setup"), newcomer.key, tmp_path / "home")


def test_a_provider_key_that_is_added_in_the_console_is_used(
    newcomer: Newcomer, owner: PlainBrowser, provider: FakeOpenAI
) -> None:
    """The form is sent as it is shown; only the key is entered."""
    page = owner.submit("/console/start", "connect", token=PROVIDER_KEY)
    assert "OpenAI is connected" in page
    answer = newcomer.shell(
        f"curl -sS {newcomer.address}/v1/chat/completions -H 'Authorization: Bearer {newcomer.key}' "
        """-H 'Content-Type: application/json' -d '{"model": "gpt-4o-mini", "messages": """
        """[{"role": "user", "content": "Hello!"}]}'"""
    )
    assert "choices" in json.loads(answer), answer
    assert provider.calls[-1].headers["authorization"] == f"Bearer {PROVIDER_KEY}"


def leaves(run: Callable[..., str], *path: str) -> Iterator[str]:
    """Return all commands that the help of a program names."""
    text = run(f"{' '.join(path)} --help")
    if path and "\nCommands:\n" not in text:
        yield " ".join(path)
        return
    if path and f"{path[-1]} [OPTIONS] [COMMAND]" in text.splitlines()[0]:
        yield " ".join(path)
    for name in re.findall(r"^  ([a-z][a-z-]*)(?:\s|$)", text.partition("\nCommands:\n")[2], re.MULTILINE):
        yield from leaves(run, *path, name)


def run_lines(newcomer: Newcomer, program: str, run: Callable[..., str], lines: str, **names: str) -> list[str]:
    """Run the commands of a group in order, and return them. Each must end as its line says. The first is started from
    a shell, as a person does."""
    faults, done = [], []

    def in_shell(line: str, *given: Any, **more: Any) -> str:
        return newcomer.shell(f"{newcomer.folder}/{program} {line}", *given, **more)

    for line in filter(None, map(str.strip, lines.splitlines())):
        try:
            run_line(run if done else in_shell, newcomer.folder, line, names)
        except (AssertionError, KeyError, subprocess.TimeoutExpired) as error:
            faults.append(f"{line}: {error}")
        done.append(re.sub(r"^(1 \||in [^:]*:|echo \S+ \||\w+ <-|\s)*", "", line))
    assert not faults, "\n\n".join(faults)
    return done


def run_line(run: Callable[..., str], folder: Path, line: str, names: dict[str, str]) -> None:
    status, typed, kept = 0, "", ""
    if line.startswith("1 | "):
        status, line = 1, line[4:]
    if line.startswith("in "):
        place, _, line = line[3:].partition(": ")
        folder = Path(place.format(**names))
        folder.mkdir(exist_ok=True)
    if line.startswith("echo "):
        typed, _, line = line[5:].partition(" | ")
    if " <- " in line:
        kept, _, line = line.partition(" <- ")
        line += " --json"
    printed = run(line.format(**names), folder, typed=typed, status=status)
    if kept:
        found = re.findall(r'"id": "([^"]+)"', printed)
        assert found, f"{line} names no id: {printed}"
        names[kept] = found[0]


def check_complete(named: list[str], done: list[str]) -> None:
    missing = [name for name in named if not any(f"{line} ".startswith(f"{name} ") for line in done)]
    assert not missing, f"without plausible arguments: {missing}"


def test_every_command_of_the_operators_help_runs(newcomer: Newcomer, tmp_path: Path) -> None:
    litellm = tmp_path / "litellm.yaml"
    litellm.write_text("model_list:\n  - {model_name: a, litellm_params: {model: gpt-4o-mini}}\n")
    names = {"folder": str(tmp_path), "litellm": str(litellm)}

    def run_group(lines: str) -> list[str]:
        with newcomer.many("manage") as run:
            return run_lines(newcomer, "manage", run, lines, **names)

    with ThreadPoolExecutor(2) as pool:
        groups = [pool.submit(run_group, lines) for lines in MANAGE.values()]
    faults = [str(group.exception()) for group in groups if group.exception()]
    assert not faults, "\n\n".join(faults)
    with newcomer.many("manage") as run:
        check_complete(list(leaves(run)), [line for group in groups for line in group.result()])


def test_every_command_of_the_clients_help_runs(newcomer: Newcomer, tmp_path: Path) -> None:
    newcomer.shell("./manage members set-password owner@localhost", typed=PASSWORD)
    newcomer.shell("./llmgateway auth login --email owner@localhost", typed=PASSWORD)
    project = json.loads(newcomer.shell("./llmgateway projects list --json"))
    names = {"project": project[0]["id"], "organization": project[0]["organizationId"], "folder": str(tmp_path)}
    (tmp_path / "route.json").write_text('{"otherwise": "gpt-4o-mini"}')
    line = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": EMBEDDING}
    (tmp_path / "lines.jsonl").write_text(json.dumps(line))
    added = newcomer.shell(f"./manage members add {names['organization']} dev@acme.example --json")
    newcomer.shell(f"./manage teams create {names['organization']} Research")
    names["member"] = json.loads(added)["id"]
    hook = newcomer.shell(f"./manage alerts add http://127.0.0.1:9/hook --organization {names['organization']} --json")
    names["hook"] = json.loads(hook)["id"]
    with newcomer.many("llmgateway") as run:
        done = run_lines(newcomer, "llmgateway", run, CLIENT, **names)
        check_complete(list(leaves(run)), [*done, "auth login"])
