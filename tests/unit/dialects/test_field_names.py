"""Errors and warnings name the field that the caller of a dialect sent."""

from gateway.dialects.field_names import restate, reword
from gateway.errors import InvalidRequest

# Name in chat completions → names in other dialects and operations, of the vendors' API references.
FIELDS = {
    "messages": "responses input, aisdk prompt, completions prompt, embeddings input, rerank documents,"
    " google contents, cohere_embed texts",
    "response_format": "responses text.format, anthropic output_config.format, aisdk responseFormat,"
    " google generationConfig.responseJsonSchema",
    "input_type": "google taskType",
    "dimensions": "google outputDimensionality, cohere_embed output_dimension",
    "tool_choice": "aisdk toolChoice, google toolConfig.functionCallingConfig",
    "reasoning": "anthropic thinking, google generationConfig.thinkingConfig, cohere thinking",
    "reasoning_effort": "responses reasoning.effort, anthropic output_config.effort,"
    " google generationConfig.thinkingConfig.thinkingLevel",
}


def test_a_field_has_the_name_that_its_caller_knows() -> None:
    for param, names in FIELDS.items():
        for pair in names.split(", "):
            surface, name = pair.split()
            error = restate(InvalidRequest(f"Give `{param}`.", param=param), surface)
            assert (error.param, error.message) == (name, f"Give `{name}`.")
            assert reword(surface, f"{param} was left out.") == f"{name} was left out."
    assert restate(InvalidRequest("No.", param="messages"), "openai").param == "messages"
    assert reword("anthropic", "service_tier fast was left out.").startswith("speed ")
