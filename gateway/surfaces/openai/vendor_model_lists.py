"""The model list in the forms of other vendors: their clients read it at the same path, and name themselves in the user
agent.

Wire facts: the types of the models in the packages `mistralai` 3.7, `cohere` 7.3 and `anthropic` 2.14.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]
# "mistral-client-python/3.7.0", "mistral-client-typescript/2.7.0", "cohere/7.3.1", "cohere-ai/8.1.0",
# "AsyncAnthropic/Python 2.14.0"
find_agent = re.compile(r"(?P<mistral>mistral-client-)|(?P<cohere>^cohere(?:-ai)?/)|(?P<anthropic>Anthropic/)").search
# Endpoints of Cohere's API by the output of the models that serve them.
ENDPOINTS = {"text": "chat", "embedding": "embed", "rerank": "rerank"}
DEFAULT = "auto"


class ListForm(NamedTuple):
    """The form of a vendor's list: `write_list` writes it from all entries and the `parameters` of the
    query, `write_entry` one entry."""

    name: str
    write_list: Callable[[list[Json], Mapping[str, str]], Json]
    write_entry: Callable[[Json], Json]
    parameters: frozenset[str] = frozenset()


def find_form(headers: Mapping[str, str]) -> ListForm | None:
    """Return the form that the client of a request reads; None for the gateway's own."""
    match = find_agent(headers.get("user-agent", ""))
    if match is None:
        return None
    return FORMS[match.lastgroup or ""]


def convert_list(form: ListForm, body: bytes, arguments: Mapping[str, str]) -> bytes:
    """Return a serialized list of the gateway in another form."""
    return orjson.dumps(form.write_list(orjson.loads(body)["data"], arguments))


def _write_cards(entries: list[Json], arguments: Mapping[str, str]) -> Json:
    return {"object": "list", "data": list(map(_write_card, entries))}


def _write_card(entry: Json) -> Json:
    inputs = entry["architecture"]["input_modalities"]
    outputs = entry["architecture"]["output_modalities"]
    chats = "text" in outputs
    abilities = {
        "completion_chat": chats,
        "function_calling": "tools" in entry["supported_parameters"],
        "reasoning": any(provider["reasoning"] for provider in entry["providers"]),
        "vision": chats and "image" in inputs,
        "audio": chats and "audio" in inputs,
        "ocr": "ocr" in outputs,
        "audio_transcription": "transcription" in outputs,
        "audio_speech": outputs == ["audio"],
    }
    return entry | {"type": "base", "max_context_length": entry["context_length"], "capabilities": abilities}


def _write_models(entries: list[Json], arguments: Mapping[str, str]) -> Json:
    models = list(map(_write_model, entries))
    endpoint = arguments.get("endpoint")
    if endpoint:
        models = [model for model in models if endpoint in model["endpoints"]]
    if arguments.get("default_only", "").lower() == "true":
        models = [model for model in models if model["default_endpoints"]]
    return {"models": models}


def _write_model(entry: Json) -> Json:
    endpoints = [ENDPOINTS[output] for output in entry["architecture"]["output_modalities"] if output in ENDPOINTS]
    return {
        "name": entry["id"],
        "is_deprecated": bool(entry["deprecated_at"]),
        "endpoints": endpoints,
        "default_endpoints": endpoints if entry["id"] == DEFAULT else [],
        "finetuned": False,
        "context_length": entry["context_length"],
        "features": entry["supported_parameters"],
    }


def _write_infos(entries: list[Json], arguments: Mapping[str, str]) -> Json:
    return {"data": list(map(_write_info, entries)), "has_more": False}


def _write_info(entry: Json) -> Json:
    """Return the entry with dates that are null instead of empty, and the sizes by this vendor's names."""
    return entry | {
        "deprecated_at": entry["deprecated_at"] or None,
        "retires_at": entry["deactivated_at"] or None,
        "max_input_tokens": entry["context_length"] or None,
        "max_tokens": entry["max_output"] or None,
    }


FORMS = {
    "mistral": ListForm("mistral", _write_cards, _write_card),
    "cohere": ListForm("cohere", _write_models, _write_model, frozenset(("endpoint", "default_only"))),
    "anthropic": ListForm("anthropic", _write_infos, _write_info),
}
