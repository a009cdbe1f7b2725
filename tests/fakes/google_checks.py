"""Checks requests like generativelanguage.googleapis.com: by published types, and by rules that types do not
express."""

import json
import re
from typing import Any
from urllib.parse import parse_qs

from fakes import google_types as published
from pydantic import ValidationError
from support.schema_samples import google_complaints, keywords_of

PATH = re.compile(r"^/(v1beta|v1|v1(?:/projects/[\w-]+/locations/[\w-]+)?/publishers/google)/models/([\w.@-]+):(\w+)$")
METHODS = ("generateContent", "streamGenerateContent")
REFUSED_KEY = "AIza-revoked"
MISSING_MODEL = "gemini-none"
NO_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
JSON_SCHEMA_WORDS = {
    *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
    *("minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties"),
    *("required", "propertyOrdering"),
}
PART_DATA = {
    *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse", "thoughtSignature"),
}
ALPHABET = str.maketrans("-_", "+/")
NAME = re.compile(r"^[A-Za-z_][\w.:-]{0,127}$")
CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


class Refused(Exception):
    """An error response of the real service."""

    def __init__(self, message: str, *, status: int = 400, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.status = status
        error: dict[str, Any] = {"code": status, "message": message, "status": CODES[status]}
        if details:
            error["details"] = details
        self.body = {"error": error}


def check_request(
    environ: dict[str, Any], headers: dict[str, str], payload: bytes, signatures: dict[str, str]
) -> tuple[str, bool, dict[str, Any]]:
    """Return (model, streamed, body) of a valid request. Refused for an invalid one.

    `signatures` are the issued signatures, each with the part that it belongs to.
    """
    found = PATH.match(environ["PATH_INFO"])
    if not found or found[3] not in METHODS or environ["REQUEST_METHOD"] != "POST":
        raise Refused("The requested URL was not found on this server.", status=404)
    _check_credential(environ, headers, enterprise="publishers" in found[1])
    try:
        body = json.loads(payload)
        published.Request.model_validate_json(payload)
    except ValidationError as error:
        raise _refusal(error) from None
    except ValueError:
        raise Refused("Invalid JSON payload received.") from None
    if found[2] == MISSING_MODEL:
        raise Refused(f"models/{MISSING_MODEL} is not found for API version v1beta.", status=404)
    generation = float(match[1]) if (match := re.search(r"gemini-(\d+(?:\.\d+)?)", found[2])) else 2.0
    _check_tools(body, generation, "publishers" in found[1])
    _check_generation(body.get("generationConfig") or {}, body, generation)
    check_turns(_merge_turns(body["contents"]))
    if generation >= 3:
        _check_signatures(body["contents"], signatures)
    return found[2], found[3] == METHODS[1], body


def _check_credential(environ: dict[str, Any], headers: dict[str, str], enterprise: bool) -> None:
    query = parse_qs(environ.get("QUERY_STRING", ""))
    if "key" in query:
        raise AssertionError("a key came in the address")
    key = headers.get("x-goog-api-key", "")
    token = headers.get("authorization", "").removeprefix("Bearer ")
    if key == REFUSED_KEY:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        raise Refused("API key not valid. Please pass a valid API key.", details=[reason])
    if not key and not (enterprise and token.startswith("ya29.")):
        raise Refused("Request is missing required authentication credential.", status=401)


def _refusal(error: ValidationError) -> Refused:
    """Return the error for an unknown member, otherwise for the deepest error, with the service's text."""
    found = sorted(error.errors(), key=lambda error: (error["type"] != "extra_forbidden", -len(error["loc"])))[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found["loc"][:-1]).lstrip(".")
    if found["type"] == "extra_forbidden":
        text = f"Invalid JSON payload received. Unknown name \"{found['loc'][-1]}\" at '{path}': Cannot find field."
    else:
        text = f"Invalid value at '{path}.{found['loc'][-1]}' ({found['type']}), {found['input']!r}"
    violation = {"field": path, "description": text}
    bad = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    return Refused(text, details=[bad])


def _check_tools(body: dict[str, Any], generation: float, enterprise: bool) -> None:
    tools = body.get("tools") or []
    declared = [declaration for tool in tools for declaration in tool.get("functionDeclarations", ())]
    for place, declaration in enumerate(declared):
        path = f"GenerateContentRequest.tools[0].function_declarations[{place}]"
        if not NAME.match(declaration.get("name", "")):
            raise Refused(f"{path}.name: Invalid function name.")
        _check_schema(declaration.get("parameters"), f"{path}.parameters")
        _check_json_schema(declaration.get("parametersJsonSchema"), f"{path}.parameters_json_schema", generation)
        if "parameters" in declaration and "parametersJsonSchema" in declaration:
            raise Refused(f"{path}: only one of parameters and parameters_json_schema may be set.")
    mixed = declared and any("googleSearch" in tool for tool in tools)
    flag = (body.get("toolConfig") or {}).get("includeServerSideToolInvocations")
    if mixed and (generation < 3 or enterprise or not flag):
        raise Refused("Built-in tools ({google_search}) and Function Calling cannot be combined in the same request.")
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if calling and calling.get("mode") not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        raise Refused("Invalid value at 'tool_config.function_calling_config.mode'.")
    names = {declaration["name"] for declaration in declared}
    if not set(calling.get("allowedFunctionNames", ())) <= names:
        raise Refused("`allowed_function_names` should be a subset of the declared functions.")
    if calling.get("allowedFunctionNames") and calling["mode"] != "ANY":
        raise Refused("`allowed_function_names` should be set only when the mode is ANY.")


def _check_schema(schema: dict[str, Any] | None, path: str) -> None:
    complaints = google_complaints(schema) if schema else []
    if complaints:
        raise Refused(f"{path}: {complaints[0]}")


def _check_json_schema(schema: Any, path: str, generation: float) -> None:
    if schema is None:
        return
    if generation < 2.5:
        raise Refused(f"{path}: JSON schema is not supported by this model.")
    unknown = keywords_of(schema) - JSON_SCHEMA_WORDS
    if unknown:
        raise Refused(f'{path}: Unknown name "{min(unknown)}": Cannot find field.')


def _check_generation(config: dict[str, Any], body: dict[str, Any], generation: float) -> None:
    if not 0 <= config.get("temperature", 1) <= 2:
        raise Refused("* GenerateContentRequest.generation_config.temperature: must be in the range [0.0, 2.0]\n")
    if not 1 <= config.get("candidateCount", 1) <= 8:
        raise Refused("* GenerateContentRequest.generation_config.candidate_count: must be in the range [1, 8]\n")
    if len(config.get("stopSequences", ())) > 5:
        raise Refused("* GenerateContentRequest.generation_config.stop_sequences: at most 5\n")
    thinking = config.get("thinkingConfig") or {}
    if "thinkingLevel" in thinking and ("thinkingBudget" in thinking or generation < 3):
        raise Refused("Thinking level is not supported for this model, or together with a thinking budget.")
    if thinking.get("thinkingLevel", "LOW") not in ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"):
        raise Refused("Invalid value at 'generation_config.thinking_config.thinking_level'.")
    _check_schema(config.get("responseSchema"), "generation_config.response_schema")
    _check_json_schema(config.get("responseJsonSchema"), "generation_config.response_json_schema", generation)
    structured = config.get("responseMimeType") == "application/json"
    if structured and body.get("tools") and generation < 3:
        raise Refused("Function calling with a response mime type: 'application/json' is unsupported")
    if ("responseSchema" in config or "responseJsonSchema" in config) and not structured:
        raise Refused("Schema can be set only with a response mime type of application/json.")


def _merge_turns(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge adjacent contents of a role into a turn: the official client sends the pieces of a stream separately."""
    turns: list[dict[str, Any]] = []
    for content in contents:
        if turns and turns[-1].get("role") == content.get("role"):
            turns[-1] = {**turns[-1], "parts": [*turns[-1].get("parts", ()), *content.get("parts", ())]}
        else:
            turns.append(content)
    return turns


def check_turns(contents: list[dict[str, Any]]) -> None:
    """Check the roles, and that each function call turn is followed by the same number of responses, by name and id."""
    if not contents:
        raise Refused("* GenerateContentRequest.contents: contents is not specified\n")
    for place, content in enumerate(contents):
        if content.get("role") not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.")
        if not content.get("parts"):
            raise Refused(f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty.\n")
        for number, part in enumerate(content["parts"]):
            if not part.keys() & PART_DATA:
                raise Refused(
                    f"* GenerateContentRequest.contents[{place}].parts[{number}].data: required oneof field 'data' "
                    "must have one initialized field\n"
                )
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if calls and (place == 0 or contents[place - 1]["role"] != "user"):
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or after a function"
                " response turn."
            )
        if answers:
            _check_answers(answers, contents[place - 1]["parts"] if place else [])
        elif place and any("functionCall" in part for part in contents[place - 1]["parts"]):
            raise Refused("Please ensure that function response turn comes immediately after a function call turn.")


def _check_answers(answers: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    calls = [part["functionCall"] for part in before if "functionCall" in part]
    if len(calls) != len(answers):
        raise Refused(
            "Please ensure that the number of function response parts is equal to the number of function call parts"
            " of the function call turn."
        )
    for call, answer in zip(calls, answers, strict=True):
        # The official client returns no ids of the functions that it calls itself.
        if call["name"] != answer.get("name") or answer.get("id") not in (None, call.get("id")):
            raise Refused("Function response does not match its function call.")
        if not isinstance(answer.get("response"), dict):
            raise Refused("Invalid value at 'function_response.response'.")


def _check_signatures(contents: list[dict[str, Any]], signatures: dict[str, str]) -> None:
    """Check that the first call of each step in the current turn has the signature that was issued for it."""
    user_turns = [
        place
        for place, content in enumerate(contents)
        if content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])
    ]
    for place, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and place > (user_turns[-1] if user_turns else -1) and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"]["name"]
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to"
                " work correctly, and missing thought_signature may lead to degraded model performance. Additional"
                f" data, function call `default_api:{name}` , position {place + 1}."
            )
        for part in content["parts"]:
            _check_signature(part, signatures)


def _check_signature(part: dict[str, Any], signatures: dict[str, str]) -> None:
    signature = part.get("thoughtSignature")
    if signature is None or signature in NO_SIGNATURES:
        return
    owner = part["functionCall"]["name"] if "functionCall" in part else "text"
    # Bytes in JSON may use either base64 alphabet (proto3 JSON mapping); the official client sends the other one.
    if signatures.get(signature.translate(ALPHABET)) != owner:
        raise Refused("Corrupted thought signature.")
