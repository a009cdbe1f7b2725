"""`init`, `list`, `add`, `dev`, `upgrade` and `docs`."""

import json
import re
import stat
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client, working_in
from harness.fake_agents import FakeAgents
from harness.projects import PYTHON_TEMPLATES, make_project, read_manifest, run_python, set_key

from llmgateway_cli import __version__
from llmgateway_cli.output import Output
from llmgateway_cli.projects import templates
from llmgateway_cli.projects.installation import install
from llmgateway_cli.projects.manifest import digest_of
from llmgateway_cli.projects.templates import FOLDER, TEMPLATES
from llmgateway_cli.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CATEGORIES = {"web", "bot", "agent", "script"}


def test_templates_are_listed(signed_out: Client) -> None:
    listed = signed_out.document("list")
    assert listed[0]["name"] == "image-generation"
    assert all(entry.keys() == {"name", "description", "category", "path"} for entry in listed)
    assert {entry["category"] for entry in listed} <= CATEGORIES
    table = signed_out.run("list").stdout
    assert all(entry["name"] in table for entry in listed)


@pytest.mark.parametrize("name", ["__pycache__", "node_modules", ".pytest_cache"])
def test_files_that_a_run_left_in_a_template_are_not_copied(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "batch-script" / name
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    monkeypatch.setattr(templates, "FOLDER", tmp_path)
    assert TEMPLATES["batch-script"].read_files({}) == {}


def test_default_template_is_image_generation_or_that_of_the_configuration(signed_out: Client) -> None:
    project = signed_out.document("init", "first", "--no-install")
    assert (project["name"], project["template"]) == ("first", "image-generation")
    assert (Path(project["path"]) / "main.py").exists()
    signed_out.configure(defaultTemplate="batch-script")
    signed_out.run("init", "second", "--no-install")
    assert read_manifest(signed_out.home / "second")["template"] == "batch-script"


def test_project_names_the_gateway_and_keeps_its_key_private(signed_out: Client, account: Account) -> None:
    folder = make_project(signed_out, signed_out.home / "own", "chat-web-app")
    local = folder / ".env.local"
    assert stat.S_IMODE(local.stat().st_mode) == 0o600
    assert f"LLMGATEWAY_BASE_URL={account.address}/v1" in local.read_text()
    assert local.read_text() == (folder / ".env.example").read_text()
    assert ".env.local" in (folder / ".gitignore").read_text().splitlines()
    assert "<title>own</title>" in (folder / "static/index.html").read_text()


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_placeholder_is_left_in_a_project(signed_out: Client, template: str) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert texts and not any("{{" in text for text in texts)


def test_the_name_is_prompted_for_on_a_terminal_and_required_elsewhere(signed_out: Client) -> None:
    with signed_out.terminal("init", "--no-install") as terminal:
        terminal.answer("The project's name:", "typed")
        terminal.end()
    assert (signed_out.home / "typed" / "main.py").exists()
    assert "-n NAME" in signed_out.refused("init")


def test_wrong_names_make_nothing(signed_out: Client) -> None:
    assert "image-generation, chat-web-app" in signed_out.refused("init", "x", "-t", "unknown")
    assert "lower-case" in signed_out.refused("init", "x", "-n", "../escape")
    (signed_out.home / "file").write_text("")
    assert "is a file" in signed_out.refused("init", "file")
    assert not (signed_out.home / "x").exists()


def test_folder_with_files_is_used_after_a_question_only(signed_out: Client) -> None:
    folder = signed_out.home / "own"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert "Give -y" in signed_out.refused("init", "own", "--no-install")
    with signed_out.terminal("init", "own", "--no-install") as terminal:
        terminal.answer("is not empty", "n")
        assert "Nothing was changed" in terminal.end()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    signed_out.run("init", "own", "--no-install", "-y")
    assert (folder / "main.py").exists() and (folder / "notes.txt").read_text() == "mine"


def test_key_of_an_earlier_project_stays(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "own", "batch-script")
    set_key(folder, "llmgtwy_mine")
    signed_out.run("init", "own", "-t", "batch-script", "--no-install", "-y")
    assert "llmgtwy_mine" in (folder / ".env.local").read_text()


def test_new_folder_is_made_completely_or_not_at_all(signed_out: Client) -> None:
    place = signed_out.home / "readonly"
    place.mkdir(mode=0o700)
    (place / ".new.partial").write_text("in the way")
    assert "cannot be" in signed_out.refused("init", str(place / "new"), "--no-install")
    assert not (place / "new").exists()


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("template", PYTHON_TEMPLATES)
def test_tests_of_a_template_pass(signed_out: Client, template: str) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    # Plugins of other libraries of this environment are no part of a project.
    options = ("-q", "-p", "no:cacheprovider", "--disable-plugin-autoload")
    assert " passed" in run_python(folder, "-m", "pytest", *options)


@pytest.mark.parametrize("template", PYTHON_TEMPLATES)
def test_pinned_versions_are_those_that_the_tests_use(template: str) -> None:
    pins = dict(line.split("==") for line in (FOLDER / template / "requirements.txt").read_text().split())
    text = (ROOT / "requirements-dev.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==([^\s;]+)", text, re.M))
    assert pins == {name: locked[name.lower()] for name in pins}


EXPECTED = {
    "image-generation": "Wrote image.png",
    "agent-with-tools": "",
    "rag-embeddings": "returns.md",
    "batch-script": "3 answered, 0 failed",
}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("template", EXPECTED)
def test_project_runs_against_the_sandbox(signed_out: Client, account: Account, template: str) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    set_key(folder, account.key)
    printed = run_python(folder, *TEMPLATES[template].dev[1:])
    assert printed.strip() and EXPECTED[template] in printed


@pytest.mark.slow
def test_added_tool_is_found_by_the_agent(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "agent", "agent-with-tools")
    inside = working_in(signed_out, folder)
    assert inside.document("add", "tool", "calculator")["path"] == "tools/calculator.py"
    code = (
        "from tools import TOOLS, call_tool; print(*TOOLS, call_tool('calculator', {'expression': '(2 + 3) * -4 % 7'}))"
    )
    assert run_python(folder, "-c", code).split() == ["calculator", "clock", "1"]
    refused = run_python(
        folder, "-c", "from tools import call_tool; print(call_tool('calculator', {'expression': 'open(1)'}))"
    )
    assert "only numbers" in refused


@pytest.mark.slow
def test_added_routes_are_served_by_the_web_app(signed_out: Client, account: Account) -> None:
    folder = make_project(signed_out, signed_out.home / "web", "chat-web-app")
    set_key(folder, account.key)
    inside = working_in(signed_out, folder)
    for name in ("generate", "chat"):
        inside.run("add", "route", name)
    code = (
        "from app import create_app; client = create_app().test_client();"
        "print(bool(client.post('/api/chat', json={'message': 'Hello'}).json['answer']));"
        "print(client.post('/api/generate', json={'prompt': 'A tree'}).json['image'][:22]);"
        "print(client.post('/api/chat', json={}).status_code)"
    )
    assert run_python(folder, "-c", code).split() == ["True", "data:image/png;base64,", "400"]


@pytest.mark.parametrize("kind", ["tool", "route"])
@pytest.mark.parametrize("template", ["batch-script", "mcp-client", "agent-with-tools", "chat-web-app"])
def test_added_piece_that_the_project_does_not_find_comes_with_its_use(
    signed_out: Client, kind: str, template: str
) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    inside = working_in(signed_out, folder)
    name = {"tool": "weather", "route": "chat"}[kind]
    finished = inside.run("add", kind, name)
    is_found = {"agent-with-tools": "tool", "chat-web-app": "route"}.get(template) == kind
    assert ("Import it" not in finished.stderr) is is_found
    written = re.search(r"Wrote (\S+)\.\n", finished.stderr)
    assert written and (folder / written[1]).exists()


def test_existing_file_is_replaced_after_a_question_only(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "agent", "agent-with-tools")
    inside = working_in(signed_out, folder)
    assert inside.document("add", "tool", "search") == {"kind": "tool", "name": "search", "path": "tools/search.py"}
    (folder / "tools/search.py").write_text("mine")
    assert "Give -y" in inside.refused("add", "tool", "search")
    with inside.terminal("add", "tool", "search") as terminal:
        terminal.answer("Replace it?", "")
        terminal.end()
    assert (folder / "tools/search.py").read_text() == "mine"
    inside.run("add", "tool", "search", "-y")
    assert "agent/0.1" in (folder / "tools/search.py").read_text()


def test_members_to_add_are_chosen_on_a_terminal(signed_out: Client) -> None:
    inside = working_in(signed_out, make_project(signed_out, signed_out.home / "agent", "agent-with-tools"))
    with inside.terminal("add") as terminal:
        terminal.answer("What should be added?", "1")
        terminal.answer("Which tool?", "3")
        assert "tools/calculator.py" in terminal.end()
    assert "weather, search, calculator" in inside.refused("add", "tool", "unknown")
    assert "tool, route" in inside.refused("add", "unknown")
    assert "add tool NAME" in inside.refused("add")


def test_commands_of_a_project_need_one(signed_out: Client) -> None:
    assert "llmgateway init" in signed_out.refused("add", "tool", "weather")
    assert "llmgateway init" in signed_out.refused("dev")
    (signed_out.home / "package.json").write_text('{"scripts": {}}')
    assert "no script `dev`" in signed_out.refused("dev")
    (signed_out.home / "package.json").write_text("{")
    assert "llmgateway init" in signed_out.refused("dev")


@pytest.mark.parametrize("member", ["name", "template", "client"])
def test_a_damaged_project_is_refused(member: str, signed_out: Client) -> None:
    path = make_project(signed_out, signed_out.home / "project", "batch-script") / "llmgateway.json"
    inside = working_in(signed_out, path.parent)
    members = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in members.items() if name != member}))
    assert f"{path} is damaged: {member} must be text" in inside.refused("upgrade")
    path.write_text("{")
    assert f"{path} is damaged" in inside.refused("upgrade")
    path.write_bytes(b"\xe9")
    assert f"{path} cannot be read" in inside.refused("upgrade")
    path.unlink()
    path.mkdir()
    assert f"{path} cannot be read" in inside.refused("upgrade")


def test_dev_gives_the_port_and_passes_the_exit_code_on(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "project", "batch-script")
    (folder / "batch.py").write_text("import os, sys\nprint(os.environ['PORT'])\nsys.exit(7)\n")
    inside = working_in(signed_out, folder)
    assert inside.run("dev", "-p", "3456", code=7).stdout == "3456\n"
    assert inside.run("dev", code=7, PORT="4567").stdout == "4567\n"
    assert inside.run("dev", code=7).stdout == "3000\n"


@pytest.mark.parametrize("template", TEMPLATES)
def test_dev_starts_the_program_of_the_project(template: str, signed_out: Client, agents: FakeAgents) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    for program in ("python", "npm"):
        agents.install(program)
    working_in(signed_out, folder).run("dev", PATH=agents.path)
    if TEMPLATES[template].language == "python":
        assert (folder / agents.arguments("python")[0]).is_file()
    else:
        assert (
            agents.arguments("npm") == ["run", "dev"]
            and "dev" in json.loads((folder / "package.json").read_text())["scripts"]
        )


def test_dev_starts_the_script_of_another_package(signed_out: Client, agents: FakeAgents) -> None:
    (signed_out.home / "package.json").write_text('{"scripts": {"dev": "node server.js"}}')
    agents.install("npm")
    signed_out.run("dev", PATH=agents.path)
    assert agents.arguments("npm") == ["run", "dev"]


def test_dev_uses_the_environment_of_the_project(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "project", "batch-script")
    own = FakeAgents(folder / ".venv" / "bin")
    own.install("python")
    working_in(signed_out, folder).run("dev")
    assert own.arguments("python") == ["batch.py"]


def test_dependencies_are_installed_with_npm(signed_out: Client, agents: FakeAgents) -> None:
    agents.install("npm")
    signed_out.run("init", "project", "-t", "mcp-client", PATH=agents.path)
    assert agents.arguments("npm") == ["install", "--no-fund", "--no-audit"]
    agents.install("npm", work="echo The registry is away. >&2; exit 1")
    message = signed_out.refused("init", "second", "-t", "mcp-client", PATH=agents.path)
    assert "npm install --no-fund --no-audit` failed:\nThe registry is away." in message
    assert (signed_out.home / "second" / "package.json").exists()


def test_dependencies_are_installed_into_an_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: FakeAgents
) -> None:
    """The fake interpreter makes an environment with a fake interpreter."""
    own = FakeAgents(tmp_path / "project" / ".venv" / "bin")
    agents.install("python", work="exit 0")
    own.install("python", work="exit 0")
    monkeypatch.setattr("sys.executable", str(tmp_path / "programs" / "python"))
    install(tmp_path / "project", "python", {"PATH": agents.path}, Output({}, Settings({})))
    assert agents.arguments("python") == ["-m", "venv", str(tmp_path / "project" / ".venv")]
    assert own.arguments("python") == ["-m", "pip", "install", "--quiet", "-r", "requirements.txt"]


@pytest.mark.parametrize(
    ("template", "file"), [("batch-script", "requirements.txt"), ("mcp-client", "package.json"), ("mcp-client", "")]
)
def test_upgrade_says_when_dependencies_changed(template: str, file: str, signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "project", template)
    as_of_an_older_client(folder, {file or "README.md": "old"})
    finished = working_in(signed_out, folder).run("upgrade")
    assert ("Install them again" in finished.stderr) is bool(file)


def test_upgrade_replaces_what_the_user_left_unchanged(signed_out: Client) -> None:
    folder = make_project(signed_out, signed_out.home / "project", "batch-script")
    inside = working_in(signed_out, folder)
    assert inside.document("upgrade", "--check") == {
        "from": __version__, "to": __version__, "replaced": [], "added": [], "kept": [], "applied": False,
    }  # fmt: skip
    as_of_an_older_client(folder, {"batch.py": "old", "README.md": "old", "tests/test_batch.py": None})
    (folder / "README.md").write_text("mine")
    report = inside.document("upgrade", "--check")
    assert (report["replaced"], report["added"], report["kept"]) == (
        ["batch.py"],
        ["tests/test_batch.py"],
        ["README.md"],
    )
    assert (folder / "batch.py").read_text() == "old"
    text = inside.run("upgrade")
    assert "replaced  batch.py" in text.stdout and "kept  README.md" in text.stdout
    assert "Answer a file of prompts" in (folder / "batch.py").read_text()
    assert (folder / "tests/test_batch.py").exists() and (folder / "README.md").read_text() == "mine"
    assert inside.document("upgrade", "--check")["replaced"] == []


def as_of_an_older_client(folder: Path, texts: dict[str, str | None]) -> None:
    """Let files be as an older client wrote them; None for those that it did not have."""
    manifest = read_manifest(folder)
    for path, text in texts.items():
        if text is None:
            (folder / path).unlink()
            del manifest["files"][path]
        else:
            (folder / path).write_text(text)
            manifest["files"][path] = digest_of(text)
    (folder / "llmgateway.json").write_text(json.dumps(manifest))


def test_upgrade_of_a_foreign_project_lists_its_packages(signed_out: Client) -> None:
    assert "uses no package" in signed_out.run("upgrade", "--check").stderr
    (signed_out.home / "package.json").write_text("{")
    (signed_out.home / "requirements.txt").write_bytes(b"llmgateway-cli==1.0.0 # \xe9\n")
    assert "uses no package" in signed_out.run("upgrade", "--check").stderr
    packages = {
        "dependencies": {"@llmgateway/ai-sdk-provider": "^3.1.0", "next": "15.0.0"},
        "devDependencies": {"@llmgateway/models": "1.0.0"},
    }
    (signed_out.home / "package.json").write_text(json.dumps(packages))
    (signed_out.home / "requirements.txt").write_text("requests==2.32\nllmgateway-cli==1.0.0\n")
    listed = signed_out.document("upgrade", "--check")
    assert listed == [
        {"name": "@llmgateway/ai-sdk-provider", "version": "^3.1.0"},
        {"name": "@llmgateway/models", "version": "1.0.0"},
        {"name": "llmgateway-cli", "version": "1.0.0"},
    ]


@pytest.mark.parametrize("topic", ["models", "api", "sdk", "quickstart"])
def test_docs_print_the_page_of_a_topic(signed_out: Client, account: Account, topic: str) -> None:
    assert signed_out.run("docs", topic).stdout == f"{account.address}/docs/{topic}\n"
    assert signed_out.document("docs", topic) == {"topic": topic, "url": f"{account.address}/docs/{topic}"}


def test_unknown_topic_of_the_docs_is_their_first_page(signed_out: Client, account: Account) -> None:
    finished = signed_out.run("docs", "unknown")
    assert finished.stdout == f"{account.address}/docs\n" and "models, api, sdk, quickstart" in finished.stderr
