"""Checks requests like the Responses API: by the published request types, and by rules that types do not express."""

import json
from typing import Any

import openai.types.responses
import openai.types.shared_params
from fakes.openai_checks import Refused, check_functions, check_name
from fakes.published_types import check, worst_of
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import ValidationError

PATH = "/v1/responses"
ENCRYPTED = "reasoning.encrypted_content"
# Types that have a required id in the published types, which the service does not require without storage.
WITHOUT_ID = ("reasoning", "web_search_call", "local_shell_call")
OUTPUTS = {
    "function_call_output": ("function_call", "local_shell_call"),
    "custom_tool_call_output": ("custom_tool_call",),
    "tool_search_output": ("tool_search_call",),
    "local_shell_call_output": ("local_shell_call",),
    "shell_call_output": ("shell_call",),
    "apply_patch_call_output": ("apply_patch_call",),
}
# Items with a required id in the published types, and the prefix of the id.
KEEPING_IDS = {"image_generation_call": "ig", "file_search_call": "fs", "code_interpreter_call": "ci"}
LONGEST_CALL_ID = 64
UNPUBLISHED = ("external_web_access", "search_content_types")
PLAIN_MODELS = "gpt-4"  # the prefix of models without reasoning
Json = dict[str, Any]


def check_request(environ: Json, headers: dict[str, str], payload: bytes, sealed: set[str]) -> Json:
    """Return the body of a valid request. Refused for an invalid one."""
    if not headers.get("authorization", "").removeprefix("Bearer "):
        raise Refused("You didn't provide an API key.", status=401, code="invalid_api_key")
    if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] != "POST":
        raise Refused(f"Invalid URL ({environ['REQUEST_METHOD']} {environ['PATH_INFO']})", status=404)
    body = json.loads(payload)
    if body.get("store") is not False:
        raise Refused("This account must not store.", param="store")
    items = body["input"] if isinstance(body.get("input"), list) else []
    _check_items(items, sealed)
    _check_types(body, items)
    _check_rules(body)
    tools = list(enumerate(body.get("tools") or ()))
    check_functions([(f"tools[{place}]", tool) for place, tool in tools if tool["type"] == "function"])
    for place, tool in tools:
        if tool["type"] == "custom":
            check_name(tool["name"], f"tools[{place}].name")
    return body


def _check_types(body: Json, items: list[Json]) -> None:
    checked = {**body}
    if items:
        checked["input"] = [_named(item) for item in items]
    if body.get("tools"):
        checked["tools"] = [_published(tool) for tool in body["tools"]]
    if checked.get("tool_choice") == {"type": "web_search"}:
        del checked["tool_choice"]  # accepted by the service, but missing in its published types
    kind = ResponseCreateParamsStreaming if body.get("stream") else ResponseCreateParamsNonStreaming
    try:
        check(kind, checked, openai.types.responses, openai.types.shared_params, strict=False)
    except ValidationError as error:
        worst = worst_of(error)
        path = ".".join(str(step) for step in worst["loc"])
        raise Refused(f"Invalid value for '{path}': {worst['msg']}.", param=path, code="invalid_value") from None


def _named(item: Json) -> Json:
    """Return the item with the id and status that the published types require but the service does not."""
    if item.get("role") == "assistant" and isinstance(item.get("content"), list):
        return {"id": "x", "status": "completed", **item}
    return {"id": "x", **item} if item.get("type") in WITHOUT_ID else item


def _published(tool: Json) -> Json:
    """Return a web search without the members that Codex sends to the service and that the published types lack."""
    if tool["type"] != "web_search":
        return tool
    return {name: value for name, value in tool.items() if name not in UNPUBLISHED}


def _check_items(items: list[Json], sealed: set[str]) -> None:
    calls: set[tuple[str, str]] = set()
    answered: set[str] = set()
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind in KEEPING_IDS:
            if not item.get("id", "").startswith(f"{KEEPING_IDS[kind]}_"):
                raise Refused(f"Expected an ID that begins with '{KEEPING_IDS[kind]}'.", param=f"input[{place}].id")
        elif "id" in item and kind != "local_shell_call_output":  # which has no other name of its call
            raise Refused(
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                status=404,
                param=f"input[{place}].id",
            )
        if kind == "reasoning" and item.get("encrypted_content") not in sealed:
            raise Refused("The encrypted content could not be verified.", code="invalid_encrypted_content")
        _check_call(item, place)
        if "call_id" in item and kind not in OUTPUTS:
            calls.add((kind, item["call_id"]))
        if kind in OUTPUTS:
            ident = item["id" if kind == "local_shell_call_output" else "call_id"]
            if not any((called, ident) in calls for called in OUTPUTS[kind]):
                raise Refused(f"No tool call found for {kind} with call_id {ident}.", param="input")
            answered.add(ident)
    missing = {ident for _, ident in calls} - answered
    if missing:
        raise Refused(f"No tool output found for function call {sorted(missing)[0]}.", param="input")


COMMON_ITEMS = ("message", "function_call", "function_call_output", "reasoning", "web_search_call")


def check_common_items(items: Any) -> None:
    """Check what xAI checks: that the types of items are among its own (error message)."""
    for item in items if isinstance(items, list) else ():
        if item.get("type", "message") not in COMMON_ITEMS:
            raise Refused("data did not match any variant of untagged enum ModelInput", status=422)


def _check_call(item: Json, place: int) -> None:
    if len(item.get("call_id") or "") > LONGEST_CALL_ID:
        raise Refused(f"Invalid 'input[{place}].call_id': string too long.", code="string_above_max_length")
    if item.get("type") in ("function_call", "custom_tool_call"):
        check_name(item["name"], f"input[{place}].name")


def _check_rules(body: Json) -> None:
    """Check the rules that types do not express."""
    plain = body["model"].startswith(PLAIN_MODELS)
    if body.get("previous_response_id"):
        raise Refused("Previous response not found.", param="previous_response_id", code="previous_response_not_found")
    if body.get("max_output_tokens", 16) < 16:
        raise Refused("Invalid 'max_output_tokens': integer below minimum value.", code="integer_below_min_value")
    if plain and ENCRYPTED in body.get("include", ()):
        raise Refused("Encrypted content is not supported with this model.", param="include")
    if plain and "reasoning" in body:
        raise Refused("Unsupported parameter: 'reasoning' is not supported with this model.", param="reasoning")
    if body.get("tools") == []:
        raise Refused("Invalid 'tools': empty array.", param="tools", code="empty_array")
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        raise Refused("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
