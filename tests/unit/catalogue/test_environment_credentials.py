import pytest

from gateway.catalogue.entries import Provider
from gateway.catalogue.environment_credentials import (
    WORKLOAD_IDENTITY,
    base_url_for,
    credentials_for,
    is_configured,
    missing_variables,
    settings_for,
    variable_of,
)
from gateway.catalogue.loader import load
from gateway.configuration.settings import SettingsError

OPENAI = Provider("openai", "OpenAI", "openai", "https://a/v1", credential=("OPENAI_API_KEY",))


def test_ids_become_variable_names():
    assert variable_of("scx-ai-gp", "API_KEY") == "LLM_SCX_AI_GP_API_KEY"
    assert variable_of("inference.net", "BASE_URL") == "LLM_INFERENCE_NET_BASE_URL"


def test_our_own_name_comes_before_the_vendors():
    environment = {"OPENAI_API_KEY": "vendor", "LLM_OPENAI_API_KEY": "ours"}
    assert credentials_for(OPENAI, environment) == ["ours"]
    assert credentials_for(OPENAI, {"OPENAI_API_KEY": "vendor"}) == ["vendor"]
    assert credentials_for(OPENAI, {}) == []


@pytest.mark.parametrize(
    ("ident", "environment", "message"),
    [
        ("openai", {}, "OPENAI_API_KEY (or LLM_OPENAI_API_KEY)"),
        ("openai", {"OPENAI_API_KEY": "k"}, ""),
        ("azure", {}, "AZURE_OPENAI_API_KEY (or LLM_AZURE_API_KEY) and LLM_AZURE_RESOURCE"),
        ("azure", {"AZURE_API_KEY": "k"}, "LLM_AZURE_RESOURCE"),
        ("azure", {"AZURE_API_KEY": "k", "LLM_AZURE_BASE_URL": "https://x"}, ""),
        ("aws-bedrock", {"AWS_ACCESS_KEY_ID": "k"}, "AWS_BEARER_TOKEN_BEDROCK (or LLM_AWS_BEDROCK_API_KEY)"),
        ("ollama", {}, "LLM_OLLAMA_BASE_URL"),
        ("sandbox", {}, ""),
    ],
)
def test_credentials_that_a_provider_requires_are_named(ident, environment, message):
    assert missing_variables(load().providers[ident], environment) == message


def test_a_comma_list_is_several_keys():
    assert credentials_for(OPENAI, {"LLM_OPENAI_API_KEY": " a, b,,c "}) == ["a", "b", "c"]


def test_a_service_account_is_one_key_whatever_commas_it_has():
    account = '{"type": "service_account", "project_id": "p"}'
    assert credentials_for(OPENAI, {"LLM_OPENAI_API_KEY": account}) == [account]


def test_a_key_may_lie_in_a_file(tmp_path):
    (tmp_path / "key").write_text("secret\n")
    assert credentials_for(OPENAI, {"OPENAI_API_KEY_FILE": str(tmp_path / "key")}) == ["secret"]
    with pytest.raises(SettingsError, match="LLM_OPENAI_API_KEY_FILE"):
        credentials_for(OPENAI, {"LLM_OPENAI_API_KEY_FILE": str(tmp_path / "absent")})


def test_a_key_of_several_parts_needs_all_but_the_optional_ones():
    provider = Provider("cloud", "Cloud", "bedrock", credential=("ID:SECRET:TOKEN?",))
    assert credentials_for(provider, {"ID": "i", "SECRET": "s"}) == ["i:s"]
    assert credentials_for(provider, {"ID": "i", "SECRET": "s", "TOKEN": "t"}) == ["i:s:t"]
    assert credentials_for(provider, {"ID": "i"}) == []


def test_settings_take_the_first_name_that_is_set_else_the_default():
    provider = Provider("p", "P", "openai", settings={"region": "A_REGION|B_REGION=us-east-1", "project": "PROJECT"})
    assert settings_for(provider, {}) == {"region": "us-east-1", "project": ""}
    assert settings_for(provider, {"B_REGION": "eu", "PROJECT": "x"}) == {"region": "eu", "project": "x"}


def test_a_local_engine_is_usable_only_with_a_base_url():
    engine = load().providers["ollama"]
    assert not is_configured(engine, {})
    assert is_configured(engine, {"LLM_OLLAMA_BASE_URL": "http://127.0.0.1:11434"})
    assert base_url_for(engine, {"LLM_OLLAMA_BASE_URL": " http://x "}) == "http://x"


def test_the_sandbox_is_always_usable_and_a_hosted_provider_only_with_a_key():
    providers = load().providers
    assert is_configured(providers["sandbox"], {})
    assert not is_configured(providers["openai"], {"LLM_OPENAI_BASE_URL": "http://x"})


@pytest.mark.parametrize(
    ("ident", "name"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google-ai-studio", "GEMINI_API_KEY"),
        ("google-ai-studio", "GOOGLE_API_KEY"),
        ("groq", "GROQ_API_KEY"),
        ("mistral", "MISTRAL_API_KEY"),
        ("xai", "LLM_X_AI_API_KEY"),
        ("xai", "XAI_API_KEY"),
        ("xiaomi", "XIAOMI_API_KEY"),
        ("zai", "LLM_Z_AI_API_KEY"),
        ("novita", "LLM_NOVITA_AI_API_KEY"),
        ("gonka24", "LLM_GONKA_24_API_KEY"),
        ("runpod", "LLM_RUNPOD_KEY"),
        ("scx-ai-gp", "LLM_SCX_AI_API_KEY"),
        ("atria", "LLM_ATRIA_KEY"),
        ("vertex-anthropic", "LLM_VERTEX_ANTHROPIC_SERVICE_ACCOUNT_JSON"),
        ("vertex-anthropic", "GOOGLE_SERVICE_ACCOUNT_JSON"),
        ("vertex-openai", "LLM_VERTEX_OPENAI_SERVICE_ACCOUNT_JSON"),
        ("vertex-openai", "GOOGLE_SERVICE_ACCOUNT_JSON"),
        ("azure", "AZURE_OPENAI_API_KEY"),
        ("cohere", "CO_API_KEY"),
        ("deepinfra", "DEEPINFRA_TOKEN"),
        ("llama-cpp", "LLAMA_CPP_API_KEY"),
        ("lm-studio", "LM_STUDIO_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
        ("vllm", "VLLM_API_KEY"),
        ("meta-contributor", "LLM_META_API_KEY"),
        ("meta-contributor", "META_API_KEY"),
        ("nanogpt", "LLM_NANO_GPT_API_KEY"),
        ("nanogpt", "NANOGPT_API_KEY"),
        ("runpod", "RUNPOD_API_KEY"),
        ("scx-ai-gp", "SCX_API_KEY"),
        ("tencent", "TENCENT_API_KEY"),
        ("xiaomi", "MIMO_API_KEY"),
        ("zai", "ZAI_API_KEY"),
        ("zai", "ZHIPU_API_KEY"),
    ],
)
def test_the_documented_variables_are_read(ident, name):
    assert credentials_for(load().providers[ident], {name: "k"}) == ["k"]


def test_a_provider_with_a_public_address_reads_a_variable_of_its_vendor():
    public = [provider for provider in load().providers.values() if provider.address and provider.key_required]
    assert public and all(provider.credential for provider in public)


def test_the_project_is_discovered_with_an_identity_of_google():
    google = Provider(
        *("acme", "Acme", "google", "https://a.example/{project}/{site}"),
        identity="google",
        settings={"project": "ACME_PROJECT", "site": "ACME_SITE"},
    )
    assert missing_variables(google, {"LLM_ACME_API_KEY": WORKLOAD_IDENTITY}) == "ACME_SITE"
    assert missing_variables(google, {"LLM_ACME_API_KEY": "k"}) == "ACME_PROJECT and ACME_SITE"
