"""`catalogue sync` against a provider that lists other models than the catalogue."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engines import FakeEngine
from support.commands import SECRETS, Run, command_runner

from gateway.catalogue import loader

PROVIDER = """
name = "Acme"
protocol = "openai"
address = "https://acme.example/v1"
credential = ["ACME_API_KEY"]
"""
MAPPING = """
[[mappings]]
model = "{name}"
external_id = "{name}"
context_length = 8192
tools = true
prices = {{ prompt = "0.000001", completion = "0.000002" }}
"""


def entry(ident: str, **more: object) -> dict[str, object]:
    return {"id": ident, "object": "model", "created": 1_780_000_000, **more}


LISTED = [
    entry("acme-1", context_length=16_384, max_output_tokens=2048),
    entry("acme-2", max_output_tokens=4096),
    entry("acme-priced", pricing={"prompt": "0.000003", "completion": "0.000004"}),
    entry("ft:acme-1:mine"),
]


@pytest.fixture
def acme() -> Iterator[FakeEngine]:
    with FakeEngine({("GET", "/v1/models"): {"object": "list", "data": LISTED}}) as engine:
        yield engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a catalogue folder with a provider that has acme-1 and acme-old."""
    path = tmp_path / "catalogue"
    (path / "providers").mkdir(parents=True)
    (path / "models").mkdir()
    names = ("acme-1", "acme-old")
    (path / "providers" / "acme.toml").write_text(PROVIDER + "".join(MAPPING.format(name=name) for name in names))
    (path / "models" / "mine.toml").write_text("".join(f'[[models]]\nid = "{name}"\n' for name in names))
    return path


@pytest.fixture
def run(monkeypatch, capsys, tmp_path, folder, acme, sqlite_url) -> Run:
    environment = {
        "ACME_API_KEY": "secret",
        "LLM_ACME_BASE_URL": acme.url,
        "GATEWAY_CATALOGUE_PATH": str(folder),
        "DATABASE_URL": sqlite_url,
    }
    return command_runner(monkeypatch, capsys, tmp_path, notes=True, **environment, **SECRETS)


def test_differences_are_printed_and_nothing_is_written(run, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*.toml")}
    output = run("catalogue", "sync", "acme")
    lines = {
        line.split()[1]: line.split()[0] for line in output.splitlines() if line.startswith(("new", "cha", "gone"))
    }
    assert lines == {"acme-2": "new", "acme-priced": "new", "acme-1": "changed", "acme-old": "gone"}
    assert "context_length: 8192 → 16384" in output and "the nearest model is acme-1" in output
    assert {path: path.read_bytes() for path in folder.rglob("*.toml")} == before


def test_the_key_is_sent_to_the_configured_address(run, acme):
    run("catalogue", "sync", "acme")
    ((method, path, headers),) = acme.calls
    assert (method, path, headers["authorization"]) == ("GET", "/v1/models", "Bearer secret")


def test_the_differences_are_json(run):
    rows = json.loads(run("catalogue", "sync", "acme", "--json"))
    assert {row["difference"] for row in rows} == {"new", "changed", "gone"}


def test_the_proposal_is_a_catalogue_folder_with_open_decisions_as_comments(run, tmp_path):
    place = tmp_path / "proposal"
    run("catalogue", "sync", "acme", "--output", str(place))
    text = (place / "providers" / "acme.toml").read_text()
    rows = {row["model"]: row for row in tomllib.loads(text)["mappings"]}
    assert set(rows) == {"acme-1", "acme-priced"}
    assert rows["acme-1"] == {"model": "acme-1", "context_length": 16_384, "max_output": 2048}
    assert rows["acme-priced"]["prices"] == {"prompt": "0.000003", "completion": "0.000004"}
    assert rows["acme-priced"]["tools"] is True
    complete = {row["model"]: row for row in tomllib.loads(decided(text))["mappings"]}
    assert complete["acme-2"]["prices"] == {"prompt": "0.000001", "completion": "0.000002"}
    assert complete["acme-2"]["max_output"] == 4096 and "deactivated" in complete["acme-old"]
    assert "exists" in run("catalogue", "sync", "acme", "--output", str(place), status=1)


def decided(text: str) -> str:
    """Return a proposal in which the reviewer removed the comment marks of all entries."""
    lines = [line for line in text.splitlines() if not line.startswith(("# New", "# Gone", "# Changed"))]
    return "\n".join(line.removeprefix("# ") for line in lines)


def test_applied_entries_are_complete_and_valid(run, folder):
    output = run("catalogue", "sync", "acme", "--apply")
    catalogue = loader.load(str(folder))
    assert catalogue.served_as("acme", "acme-priced").prices[0].base.prompt == 3_000_000_000
    assert catalogue.find("acme-2") is None and catalogue.find("acme-old") is not None
    assert "Not applied: acme-1 has an entry" in output and "Applied to" in output
    assert "acme-priced" not in run("catalogue", "sync", "acme")


def test_entries_that_are_invalid_are_not_applied(run, folder):
    (folder / "models" / "broken.toml").write_text('[[models]]\nid = "x"\nsize = 3\n')
    before = (folder / "providers" / "acme.toml").read_bytes()
    assert "unknown field size" in run("catalogue", "sync", "acme", "--apply", status=1)
    assert (folder / "providers" / "acme.toml").read_bytes() == before


@pytest.mark.parametrize("text", [b"[[", b"# \xe9"])
def test_a_file_that_cannot_be_extended_is_named(run, folder, text):
    path = folder / "models" / "acme.toml"
    path.write_bytes(text)
    assert "error: acme.toml: " in run("catalogue", "sync", "acme", "--apply", status=1)
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    ("provider", "message"), [("nobody", "no provider nobody"), ("groq", "GROQ_API_KEY"), ("sandbox", "cannot be read")]
)
def test_providers_without_a_list_are_named(run, provider, message):
    assert message in run("catalogue", "sync", provider, status=1)


def test_a_provider_that_does_not_answer_is_an_error(run, acme):
    acme.away = True
    assert "status 503" in run("catalogue", "sync", "acme", status=1)
