"""Reads an engine's description of its models as catalogue entries with a price of zero.

Wire facts: OpenAI API reference, "List models"; vLLM (`max_model_len`), llama.cpp server (`meta`, and `models` with
`capabilities`), Ollama API ("Show model information": `capabilities`, `model_info`), LM Studio REST API ("List models":
`type`, `max_context_length`, `capabilities`).
"""

from dataclasses import dataclass, replace
from typing import Any

from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates

NAME_LENGTH = 200
MODEL_LIMIT = 1000
NOTHING = (Prices(TokenRates(prompt=0, completion=0)),)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that an engine serves. Abilities that an engine does not report are assumed: it refuses by itself."""

    name: str
    context_length: int = 0
    tools: bool = True
    vision: bool = True
    reasoning: bool = True
    embeds: bool = False


def read_list(wire: Any) -> list[LocalModel]:
    """The models of a list {data: [{id, …}]}, without odd and repeated entries. ValueError for another shape."""
    if isinstance(wire, dict):
        entries = wire.get("data")
    else:
        entries = None
    if not isinstance(entries, list):
        raise ValueError("not a list of models")
    more = {entry.get("name"): entry for entry in wire.get("models") or () if isinstance(entry, dict)}
    found: dict[str, LocalModel] = {}
    for entry in entries[:MODEL_LIMIT]:
        if isinstance(entry, dict):
            name = entry.get("id")
        else:
            name = None
        if isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable():
            found.setdefault(name, _read_entry(name, entry, more.get(name) or {}))
    return list(found.values())


def _read_entry(name: str, entry: dict[str, Any], more: dict[str, Any]) -> LocalModel:
    reported = entry.get("meta")
    if isinstance(reported, dict):
        meta = reported
    else:
        meta = {}
    sizes = (entry.get("max_model_len"), entry.get("max_context_length"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    served = LocalModel(name, next((size for size in map(_size, sizes) if size), 0))
    kind = entry.get("type")
    if kind in ("llm", "vlm", "embeddings"):
        reported = entry.get("capabilities")
        if isinstance(reported, list):
            tools = "tool_use" in reported
        else:
            tools = True
        return replace(served, tools=tools, vision=kind == "vlm", embeds=kind == "embeddings")
    reported = more.get("capabilities")
    if isinstance(reported, list) and reported:
        return replace(served, vision="multimodal" in reported, embeds=reported == ["embedding"])
    return served


def read_details(served: LocalModel, wire: Any) -> LocalModel:
    """The model with what {capabilities, model_info} says of it; unchanged for another shape."""
    if not isinstance(wire, dict):
        return served
    info = wire.get("model_info")
    facts = info.items() if isinstance(info, dict) else ()
    size = next((_size(value) for name, value in facts if name.endswith(".context_length")), 0)
    served = replace(served, context_length=size or served.context_length)
    reported = wire.get("capabilities")
    if not isinstance(reported, list):
        return served
    return replace(
        served,
        tools="tools" in reported,
        vision="vision" in reported,
        reasoning="thinking" in reported,
        embeds="embedding" in reported and "completion" not in reported,
    )


def _size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    return 0


def write_model(provider: Provider, served: LocalModel) -> Model:
    """The entry `<provider>/<name>` with its one mapping, priced at nothing."""
    ident = f"{provider.id}/{served.name}"
    chats = not served.embeds
    mapping = Mapping(
        provider.id,
        ident,
        served.name,
        operations=("chat",) if chats else ("embeddings",),
        prices=NOTHING,
        context_length=served.context_length,
        tools=chats and served.tools,
        parallel_tool_calls=chats and served.tools,
        vision=chats and served.vision,
        reasoning=chats and served.reasoning,
        json_output=chats,
        json_output_schema=chats,
        source=provider.id,
    )
    images = ("text", "image") if mapping.vision else ("text",)
    return Model(
        id=ident,
        name=served.name,
        family=provider.id,
        context_length=served.context_length,
        input_modalities=images,
        output_modalities=("text",) if chats else ("embedding",),
        mappings=(mapping,),
    )
