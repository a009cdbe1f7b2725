"""Checks requests like the Converse operations: by botocore's service model, and by rules that the model lacks."""

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import unquote

from fakes import bedrock_types as published
from fakes.anthropic_checks import sign
from fakes.tool_rules import repeated

API_KEY = "ABSKQmVkcm9ja0FQSUtleS1mYWtl"
ACCESS = ("AKIAFAKEFAKEFAKEFAKE", "fake/secret+key", "session/token==")
REGION = "eu-west-1"
DOCUMENT_NAME = re.compile(r"[a-zA-Z0-9()\[\]-]+(?: [a-zA-Z0-9()\[\]-]+)*")
PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream)")


class Refused(Exception):
    def __init__(self, message: str, status: int = 400, kind: str = "ValidationException") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


AccessKeys = Mapping[str, tuple[str, str, str]]
USUAL_KEYS: AccessKeys = {ACCESS[0]: ACCESS}


def check_credential(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: AccessKeys = USUAL_KEYS,
    expired: Collection[str] = (),
) -> None:
    """Check the API key, or compare the signature with that of the vendor's signer for one of the `keys`."""
    authorization = headers.get("authorization", "")
    if authorization == f"Bearer {API_KEY}":
        return
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        raise Refused("The security token included in the request is invalid.", 403, "UnrecognizedClientException")
    ident = authorization.partition("Credential=")[2].partition("/")[0]
    if ident in expired:
        raise Refused("The security token included in the request is expired", 403, "ExpiredTokenException")
    if ident not in keys or headers.get("x-amz-security-token") != keys[ident][2]:
        raise Refused("The security token included in the request is invalid.", 403, "UnrecognizedClientException")
    if authorization != expected_signature(method, url, headers, body, keys[ident]):
        raise Refused("The request signature we calculated does not match.", 403, "InvalidSignatureException")


def expected_signature(
    method: str, url: str, headers: Mapping[str, str], body: bytes, key: tuple[str, str, str] = ACCESS
) -> str:
    """Return the authorization header that botocore computes for the signed headers of the request."""
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    scope = headers["authorization"].partition("Credential=")[2].partition(",")[0].split("/")
    request = published.AWSRequest(method, url, {name: headers[name] for name in names}, body)
    request.context["timestamp"] = headers["x-amz-date"]
    signer = published.SigV4Auth(published.Credentials(*key), "bedrock", scope[2])
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    expected = f"{'/'.join((key[0], *scope[1:]))}, SignedHeaders={';'.join(names)}"
    return f"AWS4-HMAC-SHA256 Credential={expected}, Signature={signature}"


def check_body(path: str, payload: bytes) -> dict[str, Any]:
    """Return the body if the service model and the rules accept it."""
    found = PATH.fullmatch(path)
    if found is None:
        raise Refused("UnknownOperationException", 404, "UnknownOperationException")
    operation = "Converse" if found[2] == "converse" else "ConverseStream"
    try:
        body = json.loads(payload)
    except json.JSONDecodeError:
        raise Refused("Unexpected token in the request", 400, "SerializationException") from None
    shape = published.SERVICE.operation_model(operation).input_shape
    whole = {"modelId": unquote(found[1]), **body}
    report = published.ParamValidator().validate(whole, shape)
    if report.has_errors():
        raise Refused(report.generate_report())
    _walk(whole, shape, "")
    _check_turns(body)
    return body


def _walk(value: Any, shape: Any, path: str) -> None:
    """Check enums, patterns, lengths and base64, which botocore does not validate."""
    limits = shape.metadata
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        for name, inner in value.items():
            _walk(inner, shape.members[name], f"{path}.{name}")
    elif shape.type_name == "list":
        for place, inner in enumerate(value):
            _walk(inner, shape.member, f"{path}.{place}")
    elif shape.type_name == "string":
        _check_text(value, shape, path)
    elif shape.type_name in ("float", "integer") and not limits.get("min", 0) <= value <= limits.get("max", 1 << 30):
        raise Refused(f"Value '{value}' at '{path}' failed to satisfy its range")
    elif shape.type_name == "blob":
        _check_base64(value, path)


def _check_text(value: str, shape: Any, path: str) -> None:
    limits = shape.metadata
    if getattr(shape, "enum", None) and value not in shape.enum:
        raise Refused(f"Value '{value}' at '{path}' failed to satisfy enum value set: {shape.enum}")
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        raise Refused(f"Value '{value}' at '{path}' failed to satisfy regular expression pattern")
    if not limits.get("min", 0) <= len(value) <= limits.get("max", 1 << 30):
        raise Refused(f"Value at '{path}' failed to satisfy its length")


def _check_base64(value: str, path: str) -> None:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        raise Refused(f"Value at '{path}' is not base64", 400, "SerializationException") from None


def _check_turns(body: dict[str, Any]) -> None:
    turns = body["messages"]
    if not turns or turns[0]["role"] != "user":
        raise Refused("A conversation must start with a user message. Try again with one.")
    names: list[str] = []
    calls = [block["toolUse"] for turn in turns for block in turn["content"] if "toolUse" in block]
    if repeated([call["toolUseId"] for call in calls]):
        raise Refused("messages: `tool_use` ids must be unique.")
    tools = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in tool]
    if repeated([tool["name"] for tool in tools]):
        raise Refused("The toolConfig field contains a duplicate tool name.")
    for place, tool in enumerate(tools):
        if tool["inputSchema"]["json"].get("type") != "object":
            raise Refused(
                f"The value at toolConfig.tools.{place}.toolSpec.inputSchema.json.type must be one of the following: "
                "object."
            )
    points = [block for block in body.get("system", ()) if "cachePoint" in block]
    points += [block for block in body.get("toolConfig", {}).get("tools", ()) if "cachePoint" in block]
    for place, turn in enumerate(turns):
        if place and turn["role"] == turns[place - 1]["role"]:
            raise Refused(f"messages.{place}: roles must alternate between user and assistant.")
        _check_content(turn, turns[place - 1] if place else None, body, names)
        points += [block for block in turn["content"] if "cachePoint" in block]
    _check_thought(body, turns)
    if len(points) > 4:
        raise Refused("A maximum of 4 blocks with cachePoint may be provided.")


def _check_thought(body: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    """Check what Anthropic's models check with thinking on: a turn that waits for results begins with its thought."""
    thinking = (body.get("additionalModelRequestFields") or {}).get("thinking") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    if turns[-1]["role"] == "assistant":
        raise Refused("The conversation must end with a user message.")
    waits = any("toolResult" in block for block in turns[-1]["content"])
    if waits and thinking["type"] == "enabled" and "reasoningContent" not in turns[-2]["content"][0]:
        raise Refused("messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`.")


def check_signatures(body: dict[str, Any], given: set[str]) -> None:
    """Check that the thought of the history has signatures that the models gave."""
    for turn in body["messages"]:
        for block in turn["content"]:
            text = block.get("reasoningContent", {}).get("reasoningText")
            if text and text.get("signature") and text["signature"] not in (*given, sign(text["text"])):
                raise Refused("messages: Invalid `signature` in `thinking` block")


def _check_content(turn: dict[str, Any], before: dict[str, Any] | None, body: dict[str, Any], names: list[str]) -> None:
    content = turn["content"]
    if not content:
        raise Refused("The content field in the Message object is empty.")
    _check_blocks(content, names, body)
    if turn["role"] == "assistant" and any(block.keys() & {"image", "document", "toolResult"} for block in content):
        raise Refused("Only user messages can contain images, documents and tool results.")
    if turn["role"] == "user" and any(block.keys() & {"toolUse", "reasoningContent"} for block in content):
        raise Refused("User messages cannot contain tool uses or reasoning content.")
    results = {block["toolResult"]["toolUseId"] for block in content if "toolResult" in block}
    tool_use_ids = {block["toolUse"]["toolUseId"] for block in (before or {}).get("content", ()) if "toolUse" in block}
    if results != tool_use_ids:
        raise Refused("Expected toolResult blocks for the ids of the toolUse blocks of the turn before.")
    if any("document" in block for block in content) and not any("text" in block for block in content):
        raise Refused("A text block is required beside a document block.")


def _check_blocks(content: list[dict[str, Any]], names: list[str], body: dict[str, Any]) -> None:
    for block in content:
        if "text" in block and not block["text"].strip():
            raise Refused("The text field in the ContentBlock object is blank.")
        if block.keys() & {"toolUse", "toolResult"} and "toolConfig" not in body:
            raise Refused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        if "toolUse" in block and not isinstance(block["toolUse"]["input"], dict):
            raise Refused("The format of the value at toolUse.input is invalid. Provide a json object.")
        if "document" in block:
            name = block["document"]["name"]
            if not DOCUMENT_NAME.fullmatch(name) or name in names:
                raise Refused("The document file name is invalid or a duplicate.")
            names.append(name)
        if "toolResult" in block:
            _check_blocks(block["toolResult"]["content"], names, body)
