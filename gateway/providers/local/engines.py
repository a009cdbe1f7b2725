"""Reads an engine's description of its models as catalogue entries with a price of zero.

Wire facts: OpenAI API reference, "List models"; vLLM (`max_model_len`), llama.cpp server (`meta`, and `models` with
`capabilities`), Ollama API ("Show model information": `capabilities`, `model_info`), LM Studio REST API ("List models":
`type`, `max_context_length`, `capabilities`).
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates

NAME_LENGTH = 200
MODEL_LIMIT = 1000
FREE = (Prices(TokenRates(prompt=0, completion=0)),)


class LocalModel(Struct, frozen=True):
    """A model that an engine serves.

    Abilities that an engine does not report are assumed, since the engine refuses what it does not support.
    """

    name: str
    context_length: int = 0
    tools: bool = True
    vision: bool = True
    reasoning: bool = True
    embeds: bool = False


def read_list(wire: Any) -> list[LocalModel]:
    """Return the models of a list {data: [{id, …}]}, without invalid and repeated entries. ValueError for another
    shape."""
    entries = wire.get("data") if isinstance(wire, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a list of models")
    details = {entry.get("name"): entry for entry in wire.get("models") or () if isinstance(entry, dict)}
    models: dict[str, LocalModel] = {}
    for entry in entries[:MODEL_LIMIT]:
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable():
            models.setdefault(name, _read_entry(name, entry, details.get(name) or {}))
    return list(models.values())


def _read_entry(name: str, entry: dict[str, Any], details: dict[str, Any]) -> LocalModel:
    meta = entry.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    sizes = (entry.get("max_model_len"), entry.get("max_context_length"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    served = LocalModel(name, next((size for size in map(_size, sizes) if size), 0))
    kind = entry.get("type")
    if kind in ("llm", "vlm", "embeddings"):
        capabilities = entry.get("capabilities")
        tools = not isinstance(capabilities, list) or "tool_use" in capabilities
        return replace(served, tools=tools, vision=kind == "vlm", embeds=kind == "embeddings")
    capabilities = details.get("capabilities")
    if isinstance(capabilities, list) and capabilities:
        return replace(served, vision="multimodal" in capabilities, embeds=capabilities == ["embedding"])
    return served


def read_details(served: LocalModel, wire: Any) -> LocalModel:
    """Return the model with the details in {capabilities, model_info}; unchanged for another shape."""
    if not isinstance(wire, dict):
        return served
    info = wire.get("model_info")
    facts = info.items() if isinstance(info, dict) else ()
    size = next((_size(value) for name, value in facts if name.endswith(".context_length")), 0)
    served = replace(served, context_length=size or served.context_length)
    capabilities = wire.get("capabilities")
    if not isinstance(capabilities, list):
        return served
    return replace(
        served,
        tools="tools" in capabilities,
        vision="vision" in capabilities,
        reasoning="thinking" in capabilities,
        embeds="embedding" in capabilities and "completion" not in capabilities,
    )


def _size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    return 0


def write_model(provider: Provider, served: LocalModel) -> Model:
    """Return the catalogue entry `<provider>/<name>` with one mapping and prices of zero."""
    ident = f"{provider.id}/{served.name}"
    is_chat = not served.embeds
    mapping = Mapping(
        provider.id,
        ident,
        served.name,
        operations=("chat",) if is_chat else ("embeddings",),
        prices=FREE,
        context_length=served.context_length,
        tools=is_chat and served.tools,
        parallel_tool_calls=is_chat and served.tools,
        vision=is_chat and served.vision,
        reasoning=is_chat and served.reasoning,
        json_output=is_chat,
        json_output_schema=is_chat,
        source=provider.id,
    )
    inputs = ("text", "image") if mapping.vision else ("text",)
    return Model(
        id=ident,
        name=served.name,
        family=provider.id,
        context_length=served.context_length,
        input_modalities=inputs,
        output_modalities=("text",) if is_chat else ("embedding",),
        mappings=(mapping,),
    )
