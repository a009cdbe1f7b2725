"""Each template as a user gets it: made with its dependencies from the package registries, tested, and run once."""

import os
import subprocess
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client, working_in
from harness.projects import PYTHON_TEMPLATES, run_python, set_key
from support import npm

OLDEST_NODE = 20  # `engines` of the template's package.json
# `make extended` installs the project that calls tools in each language, `make templates` all of them.
TEMPLATES = [
    pytest.param(name, marks=pytest.mark.extended if name == "agent-with-tools" else pytest.mark.soak)
    for name in PYTHON_TEMPLATES
]
# pip and npm find their settings and caches there.
HOME = {"HOME": os.environ.get("HOME", "/")}
EXPECTED = {
    "image-generation": "Wrote image.png",
    "agent-with-tools": "",
    "rag-embeddings": "returns.md",
    "batch-script": "3 answered, 0 failed",
}


def init(client: Client, account: Account, template: str) -> Path:
    folder = client.home / "project"
    with working_in(client, client.home).terminal("init", str(folder), "-t", template, **HOME) as terminal:
        terminal.timeout_s = 600
        terminal.end()
    set_key(folder, account.key)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES)
def test_python_template(signed_out: Client, account: Account, template: str) -> None:
    folder = init(signed_out, account, template)
    own = str(folder / ".venv/bin/python")
    assert " passed" in run_python(folder, "-m", "pytest", "-q", python=own)
    if template in EXPECTED:
        assert EXPECTED[template] in working_in(signed_out, folder).run("dev").stdout
        return
    code = (
        "from app import create_app; client = create_app().test_client();"
        "messages = [{'role': 'user', 'content': 'Hello'}];"
        "print(client.post('/api/conversation', json={'messages': messages}).text)"
    )
    assert run_python(folder, "-c", code, python=own).strip()


@pytest.mark.extended
@pytest.mark.slow
def test_typescript_template(signed_out: Client, account: Account) -> None:
    npm.machine_node(OLDEST_NODE)
    folder = init(signed_out, account, "mcp-client")
    inside = working_in(signed_out, folder)
    for kind, name in (("tool", "weather"), ("tool", "search"), ("tool", "calculator"), ("route", "chat")):
        inside.run("add", kind, name)
    inside.run("add", "route", "generate")
    calculate = 'import { run } from "./src/tools/calculator.ts"; console.log(await run({ expression: "(2+3)*-4%7" }));'
    (folder / "calculate.ts").write_text(calculate)
    run(folder, "npm", "test")
    run(folder, "npm", "run", "check")
    assert run(folder, "npx", "tsx", "calculate.ts").strip() == "-6"
    assert "list-models" in inside.run("dev").stdout


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
