"""gateway.toml: all settings in one file, secrets by reference, mistakes with suggestions."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.catalogue import loader
from gateway.catalogue.environment_credentials import base_url_for, credentials_for, settings_for
from gateway.configuration import settings
from gateway.configuration.settings import Settings, SettingsError

FILE = """
[server]
port = 4100
workers = 2

[media]
upload_dir = "images"

[database]
url = "env:TEAM_DATABASE"

[secrets]
encryption_key = "file:keys/encryption"
metrics_token = "env:SCRAPE"

[providers.openai]
api_key = ["env:KEY_ONE", "file:keys/two"]
base_url = "https://proxy.example/v1"

[providers.azure]
api_key = "env:KEY_ONE"
values = { resource = "my-resource" }

[[providers.openai.mappings]]
model = "gpt-4o-mini"
prices = { prompt = "0.000003", completion = "0.000004" }

[providers.house]
name = "House"
protocol = "openai"
address = "https://house.example/v1"
api_key = "env:KEY_ONE"

[[providers.house.mappings]]
model = "house-model"
external_id = "house-1"
context_length = 8000
max_output = 1000

[[models]]
id = "house-model"
family = "house"

[aliases]
fast = "house-model"
"""
VARIABLES = {"KEY_ONE": "sk-one", "SCRAPE": "scrape-me", "TEAM_DATABASE": "sqlite:///team.db"}

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return the settings with this text as the file in the data folder, and these variables."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "two").write_text("sk-two\n")
    (tmp_path / "keys" / "encryption").write_text("a secret of the file\n")

    def make(text: str = FILE, **environment: str) -> Settings:
        (tmp_path / "gateway.toml").write_text(text)
        return settings.load({"GATEWAY_DATA_DIR": str(tmp_path)} | VARIABLES | environment)

    return make


def mistakes(load: Load, text: str, **environment: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loader.load_from(loader.sources_of(load(text, **environment)))
    return str(caught.value)


def test_settings_secrets_and_paths_come_from_the_file(load: Load, tmp_path: Path) -> None:
    found = load()
    assert (found.server.port, found.server.workers, found.database.url) == (4100, 2, "sqlite:///team.db")
    assert found.secret("GATEWAY_ENCRYPTION_KEY") == "a secret of the file"
    assert found.secret("GATEWAY_METRICS_TOKEN") == "scrape-me"
    assert found.media.upload_dir == str(tmp_path / "images")
    assert found.origins["server", "port"] == "gateway.toml" and found.origins["server", "host"] == "default"


def test_each_documented_secret_is_read_from_the_file_and_known_as_a_variable(load: Load) -> None:
    page = (settings.ROOT / "docs" / "configuration.md").read_text()
    sentence = page.partition("`[secrets]` has ")[2].partition(" (`")[0]
    names = re.findall(r"`(\w+)`", sentence)
    found = load("[secrets]\n" + "\n".join(f'{name} = "env:TEAM_{name.upper()}"' for name in names),
                 **{f"TEAM_{name.upper()}": "{}" for name in names})  # fmt: skip
    variables = {name: settings.SECRETS[name] for name in names}
    assert set(settings.SECRETS.values()) == set(variables.values())
    assert all(variable.endswith(name.upper()) for name, variable in variables.items())
    assert {found.secret(variable) for variable in variables.values()} == {"{}"}


def test_paths_of_the_file_are_relative_to_its_folder(load: Load, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    found = load('[media]\nupload_dir = "images"\n[catalogue]\npath = "models"')
    assert (found.media.upload_dir, found.catalogue.path) == (str(tmp_path / "images"), str(tmp_path / "models"))
    (tmp_path / "gateway.toml").write_text('[database]\ndata_dir = "data"')
    (tmp_path / "data").mkdir()
    elsewhere = settings.load({settings.CONFIG_NAME: str(tmp_path / "gateway.toml")})
    assert elsewhere.database.data_dir == str(tmp_path / "data")


def test_the_environment_wins_over_the_file(load: Load, tmp_path: Path) -> None:
    found = load(PORT="4200", GATEWAY_METRICS_TOKEN_FILE=str(tmp_path / "keys/two"), OPENAI_API_KEY="sk-environment")
    assert found.server.port == 4200 and found.origins["server", "port"] == "PORT"
    assert found.secret("GATEWAY_METRICS_TOKEN") == "sk-two"
    catalogue = loader.load_from(loader.sources_of(found))
    assert credentials_for(catalogue.providers["openai"], found.environment) == ["sk-environment"]


@pytest.mark.parametrize("meant", [True, False])
def test_a_switch_may_be_written_in_the_words_of_other_tools(load: Load, meant: bool) -> None:
    for word in ("1", "true", "Yes", "on") if meant else ("0", "false", "No", "off", ""):
        assert load(GATEWAY_ALLOW_PRIVATE_MEDIA=word).security.allow_private_media is meant, word


def test_providers_have_their_keys_addresses_models_and_prices_from_the_file(load: Load) -> None:
    found = load()
    catalogue = loader.load_from(loader.sources_of(found))
    openai, azure = catalogue.providers["openai"], catalogue.providers["azure"]
    assert credentials_for(openai, found.environment) == ["sk-one", "sk-two"]
    assert base_url_for(openai, found.environment) == "https://proxy.example/v1"
    assert settings_for(azure, found.environment)["resource"] == "my-resource"
    assert settings_for(azure, {**found.environment, "LLM_AZURE_RESOURCE": "other"})["resource"] == "other"
    mapping = next(mapping for mapping in catalogue.models["gpt-4o-mini"].mappings if mapping.provider == "openai")
    assert mapping.prices[0].base.prompt == 3_000_000_000 and mapping.external_id == "gpt-4o-mini"
    gateway = catalogue.find("fast")
    assert gateway is not None and gateway.mappings[0].provider == "house"
    assert credentials_for(catalogue.providers["house"], found.environment) == ["sk-one"]


def test_the_version_of_the_catalogue_changes_with_the_file(load: Load) -> None:
    before = loader.load_from(loader.sources_of(load()))
    after = loader.load_from(loader.sources_of(load(FILE.replace("0.000003", "0.000005"))))
    assert before.version != after.version != loader.load().version


def test_the_file_may_be_anywhere_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text("[server]\nport = 4300\n")
    named = {"GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_CONFIG": str(tmp_path / "gateway.toml")}
    assert settings.load(named).server.port == 4300
    with pytest.raises(SettingsError, match=r"gatewy\.toml: there is no such file; did you mean gateway\.toml\?"):
        settings.load(named | {"GATEWAY_CONFIG": str(tmp_path / "gatewy.toml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[sever]\nport = 1", "gateway.toml:2: there is no section [sever]; did you mean server?"),
        ("[server]\nprot = 1", "gateway.toml:2: [server] there is no setting prot; did you mean port?"),
        (
            "[server]\nport = 70000",
            "[server] port: must be at least 0 and at most 65535, got 70000 (from gateway.toml:2)",
        ),
        ("[server]\nworkers = 1.5", "expected a whole number"),
        ('[log]\nformat = "jason"', "did you mean json?"),
        ('[server]\ntrusted_proxies = ["10.0.0.0/8", "proxy"]', "'proxy' is not an address or network"),
        ("[secrets]\nmetric_token = 'env:KEY_ONE'", "there is no secret metric_token; did you mean metrics_token?"),
        (
            "[secrets]\nmetrics_token = 'plain'",
            "gateway.toml:2: [secrets] metrics_token: a secret must not be written in this file",
        ),
        ("[secrets]\nmetrics_token = 'env:KEY_TWO'", "the variable KEY_TWO is not set; did you mean KEY_ONE?"),
        ("[secrets]\nmetrics_token = 'file:keys/too'", "there is no such file; did you mean two?"),
        ("[providers.opnai]\napi_key = 'env:KEY_ONE'", "there is no provider opnai; did you mean openai?"),
        ("[providers.openai]\napi_key = 'sk-plain'", "a secret must not be written in this file"),
        ("[providers.openai]\nbas_url = 'https://x.example/v1'", "unknown field bas_url; did you mean base_url?"),
        (
            "[[providers.openai.mappings]]\nmodel = 'gpt-4o-mini'\nprices = { promt = '1' }",
            "gateway.toml:3: provider openai: mapping gpt-4o-mini: prices: unknown price promt; did you mean prompt?",
        ),
        (
            "[[providers.openai.mappings]]\nmodel = 'gpt-4o-mimi'\nexternal_id = 'x'",
            "no such model gpt-4o-mimi; did",
        ),
        ("[providers.house]\nname = 'House'\nprotocol = 'opnai'", "did you mean openai?"),
        (
            "[providers.openai]\nadress = 'https://x.example/v1'",
            "gateway.toml:2: provider openai: unknown field adress; did you mean address?",
        ),
        ("[aliases]\nfast = 'no-such-model'", "gateway.toml:2: fast means an unknown model no-such-model"),
        ("[server\nport = 1", "gateway.toml: "),
    ],
)
def test_a_mistake_is_reported_with_what_was_probably_meant(load: Load, text: str, message: str) -> None:
    found = mistakes(load, text)
    assert message in found and "sk-" not in found


def test_all_mistakes_are_reported_at_once(load: Load) -> None:
    found = mistakes(load, "[sever]\n[server]\nprot = 1\nworkers = 0\n", PORT="x", GATEWAY_ENV="prodution")
    assert len(found.splitlines()) == 5 and "did you mean production?" in found


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GATEWAY_SERVER_PROT", "GATEWAY_SERVER_PORT"),
        ("GATEWAY_DATADIR", "GATEWAY_DATA_DIR"),
        ("LLM_OPENAI_APIKEY", "LLM_OPENAI_API_KEY"),
        ("LLM_OPNAI_API_KEY", "LLM_OPENAI_API_KEY"),
        ("LLM_AZURE_RESOURCES", "LLM_AZURE_RESOURCE"),
    ],
)
def test_a_variable_that_means_nothing_is_a_mistake(load: Load, name: str, meant: str) -> None:
    assert f"{name}: there is no such setting; did you mean {meant}" in mistakes(load, "", **{name: "x"})


@pytest.mark.parametrize("name", ["default", "detectors", "gateway.example", "genai_names", "invoices", "staging"])
def test_only_files_of_environments_are_environments(name: str) -> None:
    with pytest.raises(SettingsError, match=f"there is no '{name}', only development, production, test"):
        settings.load({"GATEWAY_ENV": name})


def test_production_listens_on_every_address_and_logs_json() -> None:
    production, development = (settings.load({"GATEWAY_ENV": name}) for name in ("production", "development"))
    assert (production.server.host, production.log.format) == ("0.0.0.0", "json")
    assert (development.server.host, development.log.format) == ("127.0.0.1", "text")


def test_a_file_of_a_key_that_is_not_there_is_a_mistake(load: Load, tmp_path: Path) -> None:
    message = mistakes(load, "", GROQ_API_KEY_FILE=str(tmp_path / "keys" / "too"))
    assert "GROQ_API_KEY_FILE" in message and "did you mean two?" in message


def test_variables_of_platforms_and_of_file_references_are_no_unknown_settings(load: Load) -> None:
    platform = {"GATEWAY_SERVICE_HOST": "10.0.0.1", "GATEWAY_PORT_4001_TCP_ADDR": "10.0.0.1", "LLM_PORT": "tcp://x"}
    text = "[providers.openai]\napi_key = 'env:LLM_TEAM_KEY'"
    serve = {settings.MIGRATE_LATE: "1"}  # for its workers
    loader.load_from(loader.sources_of(load(text, LLM_TEAM_KEY="sk-team", **platform, **serve)))


@pytest.mark.parametrize("text", ["remove = true", ""])
def test_a_provider_that_is_removed_takes_its_mappings_along(load: Load, text: str) -> None:
    found = loader.load_from(
        loader.sources_of(load(f"[providers.groq]\n{text}" if text else "", LLM_GROQ_API_KEY="sk-left-over"))
    )
    served = {mapping.provider for model in found.models.values() for mapping in model.mappings}
    assert ("groq" in served) == (not text)
