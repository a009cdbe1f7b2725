"""Names of providers and operations in traces and metrics: those of OpenTelemetry's GenAI conventions."""

import tomllib

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as published

from gateway.configuration.settings import CONFIG
from gateway.neutral.operations import OPERATIONS

NAMES = tomllib.loads((CONFIG / "genai_names.toml").read_text())
NEWER = {"alibaba_cloud", "moonshot_ai"}  # of newer conventions than those of the package
NOT_SERVED = {"gcp.gen_ai", "ibm.watsonx.ai"}  # any service of Google, and IBM


def test_each_provider_of_the_conventions_has_its_name_there() -> None:
    providers = {path.stem for path in (CONFIG / "catalogue" / "providers").glob("*.toml")}
    assert set(NAMES["providers"]) <= providers
    names = {provider: NAMES["providers"].get(provider, provider) for provider in providers}
    known = {name.value for name in published.GenAiProviderNameValues} | NEWER
    assert known - NOT_SERVED <= set(names.values())
    for start, cloud in (("aws-", "aws."), ("azure", "azure.ai."), ("vertex-", "gcp.vertex_ai"), ("google-", "gcp.")):
        assert all(name.startswith(cloud) for provider, name in names.items() if provider.startswith(start))


def test_operations_without_a_name_in_the_conventions_keep_their_own() -> None:
    assert set(NAMES["operations"]) <= set(OPERATIONS)
    assert set(NAMES["operations"].values()) <= {name.value for name in published.GenAiOperationNameValues}
    assert {NAMES["operations"].get(name, name) for name in ("chat", "embeddings", "images", "image_edits")} == {
        "chat",
        "embeddings",
        "generate_content",
    }
