"""The worked examples of docs/extending/, followed: the blocks of a page are written to files and driven."""

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gevent
import orjson
import pytest
from fakes.openai import FakeOpenAI
from fakes.server import FakeServer, send_json
from msgspec.structs import replace
from openai import OpenAI
from support.gateways import ROOT, LocalGateway, local_gateway

from gateway.accounts.keys import list_keys
from gateway.accounts.members import list_members
from gateway.catalogue.entries import PROTOCOLS
from gateway.catalogue.loader import CatalogueError
from gateway.clock import to_iso
from gateway.configuration.settings import Settings, SettingsError
from gateway.neutral import operations
from gateway.operator import derived_commands
from gateway.providers import registry
from gateway.store.database import Database
from gateway.store.migrations import migrate
from gateway.surfaces import surface_table
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.visitors.visitor import MANAGEMENT
from gateway.surfaces.web.http import Surface
from gateway.worker import recurring_jobs

PAGES = ROOT / "docs" / "extending"
DOCUMENTS = (ROOT / "CONTRIBUTING.md", *sorted(PAGES.glob("*.md")))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:{)?# file: (\S+)(?: #})?\n")


class Example(dict[str, str]):
    """The files of one page, by path, and its changes of existing files, by path, as (before, after) pairs."""

    def __init__(self, name: str) -> None:
        self.page = (PAGES / f"{name}.md").read_text()
        self.changes: dict[str, list[tuple[str, str]]] = {}
        for kind, text in BLOCK.findall(self.page):
            if kind == "diff":
                self._add_change(text)
            elif named := FILE.match(text):
                self[named[1]] = text[named.end() :]
        assert self or self.changes, name

    def _add_change(self, text: str) -> None:
        head, *hunks = text.split("@@\n")
        path = head.splitlines()[0].removeprefix("--- ")
        self.changes[path] = [(_side(hunk, "-"), _side(hunk, "+")) for hunk in hunks if hunk.strip()]

    def write(self, folder: Path) -> None:
        """Make its files, and changed copies of those that it changes, below `folder`."""
        for path, text in self.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for path, changes in self.changes.items():
            text = (ROOT / path).read_text()
            for before, after in changes:
                assert text.count(before) == 1, f"{path} has no one place like:\n{before}"
                text = text.replace(before, after)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    def value_of_added_line(self, path: str, **names: object) -> Any:
        """Return the value of the one line that it adds to a table of the product.

        The line contains entries of a dictionary or elements of a tuple. It is evaluated with the names of the table's
        module and with `names`.
        """
        ((before, after),) = self.changes[path]
        assert (ROOT / path).read_text().count(before) == 1, f"{path} has no one place like:\n{before}"
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        added = after.replace(before, "").strip()
        return eval(f"{{{added}}}" if '": ' in added else f"({added})", {**vars(module), **names})


def _side(hunk: str, sign: str) -> str:
    return "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in f" {sign}")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add a folder outside of the product to Python's import path; the modules from it are removed afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules, surfaces = set(sys.modules), surface_table.SURFACES
    tables = [(entries, dict(entries)) for entries in (operations.OPERATIONS, registry.FACTORIES, PROTOCOLS)]
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    for entries, before in tables:
        entries.clear()
        entries.update(before)
    surface_table.SURFACES = surfaces


def send_chat(gateway: LocalGateway, model: str, stream: bool = False) -> str:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    request = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
    if stream:
        chunks = client.chat.completions.create(**request, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    answer = client.chat.completions.create(**request)
    assert answer.usage.cost > 0
    return answer.choices[0].message.content


def test_a_provider_is_added_by_its_toml(tmp_path: Path, settings: Callable[..., Settings]) -> None:
    Example("provider").write(tmp_path)
    with FakeOpenAI() as service:
        environment = {"ACME_API_KEY": "acme-key", "LLM_ACME_BASE_URL": service.url}
        with local_gateway(settings, GATEWAY_CATALOGUE_PATH=str(tmp_path / "catalogue"), **environment) as gateway:
            assert send_chat(gateway, "acme-large") == "Hello."
        assert service.calls[0].body["model"] == "acme-large-2026-01"
        assert service.calls[0].headers["authorization"] == "Bearer acme-key"


def run_in_a_copy(example: Example, program: str, folder: Path) -> dict[str, Any]:
    """Return what a program reports that runs with a copy of the product with the example's files and changes."""
    for name in ("gateway", "config", "migrations"):
        shutil.copytree(ROOT / name, folder / name)  # with its compiled modules, to start sooner
    example.write(folder)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", program, str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.slow
def test_a_price_unit_is_added_by_its_row(tmp_path: Path) -> None:
    example = Example("price-unit")
    assert set(example.changes) == {"gateway/neutral/units.py"}
    report = run_in_a_copy(example, "support.added_unit", tmp_path)
    assert report["tools"] == [{"type": "acme_lookup"}]
    usage = report["answer"]["usage"]
    assert usage["cost"] == usage["cost_details"]["acme_lookup_cost"] == pytest.approx(0.008)
    assert [item["type"] for item in report["answer"]["output"]] == ["acme_lookup_call"] * 2 + ["message"]
    assert report["pricing"]["acme_lookup"] == "0.004"
    assert (report["activity"]["searchCount"], report["activity"]["searchCost"]) == (2, pytest.approx(0.008))


@pytest.mark.slow
def test_a_field_of_a_project_is_added_with_its_command_and_its_form(tmp_path: Path) -> None:
    example = Example("resource-field")
    assert len(example.changes) == 3
    report = run_in_a_copy(example, "support.added_field", tmp_path)
    assert (report["before"], report["changed"]) == ("", "first@acme.example")
    assert report["refused"] == [400, "contact"]
    assert report["shown"] is True and report["saved"] is True
    assert "third@acme.example" in report["printed"]


@pytest.mark.slow
def test_a_page_of_the_console_is_added_with_its_link(tmp_path: Path) -> None:
    example = Example("console-page")
    report = run_in_a_copy(example, "support.added_page", tmp_path)
    assert report["linked"] is True
    assert report["listed"] == [True, False]
    assert report["message"] is True and report["days"] == pytest.approx(30, abs=0.01)
    assert report["refused"] == 303


def product_files(name: str) -> set[str]:
    """Return the files of the product that a page changes: code, documents, and the TOML of one provider."""
    example = Example(name)
    code = {path for path in (*example, *example.changes) if path.endswith(".py")}
    providers = [path for path in example if path.startswith("catalogue/providers/")]
    documents = re.findall(r"\]\((\.\./[a-z-]+\.md|\.\./changes/unreleased\.md)", example.page)
    return code | set(providers[:1]) | set(documents)


@pytest.mark.parametrize(
    ("name", "maximum"), [("chat-parameter", 4), ("price-unit", 3), ("management-operation", 4), ("console-page", 5)]
)
def test_an_addition_changes_few_files(name: str, maximum: int) -> None:
    assert 1 < len(product_files(name)) <= maximum


class Completer(FakeServer):
    """The service of the example's protocol."""

    def serve(self, environ, start):
        self.calls.append(environ["PATH_INFO"])
        body = orjson.loads(environ["wsgi.input"].read())
        return send_json(start, 200, {"text": f"{body['prompt']} Yes.", "tokens_in": 3, "tokens_out": 4})


@pytest.mark.parametrize("stream", [False, True])
def test_a_protocol_is_added_by_its_folder(outside, settings, stream) -> None:
    example = Example("protocol")
    example.write(outside)
    added = {"GATEWAY_SERVER_EXTENSIONS": "acme_protocol", "GATEWAY_CATALOGUE_PATH": str(outside / "catalogue")}
    with Completer() as service:
        environment = {"ACME_COMPLETE_KEY": "key", "LLM_ACME_COMPLETE_BASE_URL": service.url}
        with local_gateway(settings, **added, **environment) as gateway:
            assert send_chat(gateway, "acme-small", stream) == "Hello? Yes."
    assert service.calls == ["/complete"]
    AcmeCompletion = importlib.import_module("acme_protocol").AcmeCompletion
    assert set(example.value_of_added_line("gateway/providers/registry.py", AcmeCompletion=AcmeCompletion)) == {"acme"}
    assert example.value_of_added_line("gateway/catalogue/entries.py") == {"acme": PROTOCOLS["acme"]}


@pytest.fixture(scope="module")
def changed_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a gateway answers, and what its providers get, in a copy of the package with the added parameter."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "gateway", folder / "gateway")
    for name in ("config", "migrations"):
        (folder / name).symlink_to(ROOT / name)
    Example("chat-parameter").write(folder)
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'tests'}:{ROOT}"}
    command = [sys.executable, str(ROOT / "tests" / "support" / "parameter_exercise.py"), str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_an_added_chat_parameter_reaches_providers_that_carry_it(changed_answers: dict[str, Any]) -> None:
    relayed, rebuilt, loose = (changed_answers[name] for name in ("chat", "responses", "loose"))
    assert (relayed["status"], relayed["sent"]["tone"], relayed["warnings"]) == (200, "formal", [])
    assert (rebuilt["status"], rebuilt["sent"]["tone"], rebuilt["warnings"]) == (200, "plain", [])
    assert (loose["status"], loose["sent"]["tone"]) == (200, "formal")


def test_an_added_chat_parameter_is_left_out_with_a_warning_elsewhere(changed_answers: dict[str, Any]) -> None:
    chat, responses = changed_answers["toneless chat"], changed_answers["toneless responses"]
    assert (chat["status"], responses["status"]) == (200, 200)
    assert "tone" not in json.dumps([chat["sent"], responses["sent"]]).replace("toneless", "")
    assert chat["warnings"] == ["tone was left out: acme-toneless/acme-toneless does not support it."]
    assert responses["warnings"] == ["text.tone was left out: acme-toneless/acme-toneless does not support it."]


def test_an_invalid_value_of_an_added_chat_parameter_is_refused(changed_answers: dict[str, Any]) -> None:
    refused = changed_answers["invalid"]
    assert (refused["status"], refused["error"]["param"]) == (400, "tone")
    assert "plain or formal" in refused["error"]["message"]


def test_an_added_chat_parameter_is_described_and_distinguishes_plans(changed_answers: dict[str, Any]) -> None:
    assert changed_answers["described"] == ["formal", "plain"]
    assert changed_answers["plans differ"] is True


class Shortener(FakeServer):
    """The service of the example's operation."""

    def serve(self, environ, start):
        self.calls.append(environ["PATH_INFO"])
        text = orjson.loads(environ["wsgi.input"].read())["text"]
        return send_json(start, 200, {"digest": text[:5], "tokens_in": 20, "tokens_out": 5})


def test_an_operation_with_its_protocol_and_its_surface_is_added_by_one_folder(outside, settings) -> None:
    example = Example("operation")
    example.write(outside)
    added = {"GATEWAY_SERVER_EXTENSIONS": "acme_digest", "GATEWAY_CATALOGUE_PATH": str(outside / "catalogue")}
    with Shortener() as service:
        environment = {"ACME_DIGEST_KEY": "key", "LLM_ACME_DIGEST_BASE_URL": service.url}
        with local_gateway(settings, **added, **environment) as gateway:
            client = gateway.app.flask.test_client()
            headers = {"Authorization": f"Bearer {gateway.key}"}
            body = {"model": "acme-short", "text": "A long text."}
            good = client.post("/v1/digest", json=body, headers=headers)
            assert (good.status_code, good.json["digest"]) == (200, "A lon")
            assert good.json["cost"] == pytest.approx(25 * 0.000001)
            chat_model = client.post("/v1/digest", json=body | {"model": "gpt-4o-mini"}, headers=headers)
            assert chat_model.status_code == 400
    assert service.calls == ["/digest"]
    (entry,) = example.value_of_added_line(
        "gateway/neutral/operations.py", **vars(importlib.import_module("acme_digest"))
    )
    assert operations.OPERATIONS["acme_digest"] == entry


def test_a_surface_is_added_by_its_folder(outside, settings) -> None:
    example = Example("surface")
    example.write(outside)
    with local_gateway(settings, GATEWAY_SERVER_EXTENSIONS="acme_surface") as gateway:
        browser = gateway.app.flask.test_client()
        headers = {"Authorization": f"Bearer {gateway.key}"}
        good = browser.post("/acme/answer", json={"model": "auto", "question": "Hello?"}, headers=headers)
        bad = browser.post("/acme/answer", json={"model": "auto"}, headers=headers)
        assert (good.status_code, bool(good.json["answer"])) == (200, True)
        assert (bad.status_code, set(bad.json)) == (400, {"problem", "code"})
        assert browser.post("/acme/nowhere").json["problem"]
    acme_surface = importlib.import_module("acme_surface")
    assert example.value_of_added_line("gateway/surfaces/model_surfaces.py", acme_surface=acme_surface) == (
        surface_table.SURFACES[-1],
    )


def test_a_management_operation_is_added_with_its_command(outside, settings, monkeypatch, capsys) -> None:
    example = Example("management-operation")
    example.write(outside)
    rows = example.value_of_added_line(
        "gateway/surfaces/management/table.py", acme_routes=importlib.import_module("acme_routes")
    )
    surface_table.SURFACES = (*surface_table.SURFACES, Surface("acme", MANAGEMENT, rows))
    with local_gateway(settings) as gateway:
        services = gateway.services
        owner = list_members(services.store.database)[0]
        headers = {"Authorization": f"Bearer {services.management.sessions.open(owner.user_id).token}"}
        browser = gateway.app.flask.test_client()
        path = f"/projects/{gateway.project_id}/key-expiry"
        changed = browser.put(path, json={"expiresAt": "2030-01-31T00:00:00Z"}, headers=headers)
        [key] = list_keys(services.store.database)
        assert (changed.status_code, changed.json) == (200, {"keyIds": [key.id]})
        assert to_iso(key.expires_at_us or 0) == "2030-01-31T00:00:00.000Z"
        assert browser.put(path, json={"expiresAt": "soon"}, headers=headers).json["param"] == "expiresAt"
        assert browser.put(path, json={"expiresAt": "2030-01-31"}).status_code == 401
        described = openapi_module.describe(rows)["paths"]["/projects/{project_id}/key-expiry"]["put"]
        permitted = "For owners and admins, and for the admins of the project."
        assert permitted in described["description"] and "api_key.update" in described["description"]
        sent = described["requestBody"]["content"]["application/json"]["example"]
        assert sent == {"expiresAt": "2099-01-31T12:00:00.000Z"}
        data_folder = services.settings.database.data_dir
    monkeypatch.setenv("GATEWAY_DATA_DIR", data_folder)
    monkeypatch.setattr(derived_commands, "OPERATIONS", rows)
    group = derived_commands.make_group("projects", "Projects.")
    assert group.main(["expire-keys", gateway.project_id, "30d"], standalone_mode=False) == 0
    assert capsys.readouterr().out == f"{key.id}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import acme_nothing", "acme_nothing"),
        ("EXTENSION = None", "no EXTENSION"),
        (
            "from gateway.worker import extensions as e\nEXTENSION = e.Extension(protocols={'openai': 1})",
            "openai already",
        ),
    ],
)
def test_an_extension_that_cannot_be_loaded_ends_the_start(outside, settings, text, message) -> None:
    (outside / "acme_broken.py").write_text(text)
    with pytest.raises(SettingsError, match=message), local_gateway(settings, GATEWAY_SERVER_EXTENSIONS="acme_broken"):
        pass


def test_an_unknown_protocol_ends_the_start(outside, settings) -> None:
    Example("protocol").write(outside)
    with (
        pytest.raises(CatalogueError, match="unknown protocol 'acme'"),
        local_gateway(settings, GATEWAY_CATALOGUE_PATH=str(outside / "catalogue")),
    ):
        pass


def test_a_setting_is_read_from_its_default_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config", ignore=shutil.ignore_patterns("catalogue"))
    Example("setting").write(tmp_path)
    folder = tmp_path / "gateway/configuration"

    def load_copy(name: str, replaced: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(replaced, folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, replaced, module)
        spec.loader.exec_module(module)
        return module

    changed = load_copy("settings", "changed_settings")
    assert changed.load({}).metering.acme_report_s == 60
    assert changed.load({"GATEWAY_METERING_ACME_REPORT_S": "5"}).metering.acme_report_s == 5
    with pytest.raises(changed.SettingsError, match="acme_report_s"):
        changed.load({"GATEWAY_METERING_ACME_REPORT_S": "often"})


def test_a_migration_is_applied_to_an_empty_and_to_a_running_database(
    tmp_path: Path, database: Database, open_store: Callable[..., Database]
) -> None:
    shutil.copytree(ROOT / "migrations", tmp_path / "migrations")
    Example("migration").write(tmp_path)
    folder = tmp_path / "migrations"
    (tmp_path / "empty").mkdir(mode=0o700)
    empty = open_store(f"sqlite:///{tmp_path}/empty/gateway.db")
    assert migrate(empty, folder) == sorted(path.stem for path in folder.glob("*.py"))
    assert migrate(database, folder) == ["0900_acme_notes"]
    for store in (empty, database):
        store.write(lambda: store.execute("INSERT INTO acme_note VALUES ('n1', 'p1', 'Remember.', 1)"))  # noqa: B023
        found = store.read(lambda: store.execute("SELECT text FROM acme_note").fetchall())  # noqa: B023
        assert [tuple(row) for row in found] == [("Remember.",)]
    assert migrate(database, folder) == []


def test_recurring_work_is_added_by_a_function_and_a_line(outside, settings, monkeypatch) -> None:
    example = Example("recurring-job")
    example.write(outside)
    (job,) = example.value_of_added_line(
        "gateway/worker/recurring_jobs.py", acme_report=importlib.import_module("acme_report")
    )
    monkeypatch.setattr(recurring_jobs, "JOB_TABLE", (*recurring_jobs.JOB_TABLE, replace(job, first_s=0.0)))
    with local_gateway(settings) as gateway:
        reports = gateway.app.background.reports
        with gevent.Timeout(30, RuntimeError("no worker did the job")):
            while not any(report.at_us for report in reports() if report.name == job.name):
                gevent.sleep(0.05)
        assert [report.error for report in reports() if report.name == job.name] == [""]
        assert gateway.services.store.documents.get("acme", "organizations") == b"1"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_make_target_of_a_document_exists(document: Path) -> None:
    make_targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", document.read_text())) - set(make_targets) == set()


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", (PAGES / "README.md").read_text()))
    assert linked == {path.name for path in PAGES.glob("*.md")} - {"README.md"}
