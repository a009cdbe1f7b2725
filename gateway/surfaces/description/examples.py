"""Examples of the API description, made from its schemas: a value for each schema, chosen by its name and limits."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

JSON = "application/json"
SCIM_JSON = "application/scim+json"
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
TEXT = "text/plain"
EVENTS = "text/event-stream"
COMPONENT = "#/components/"
# Optional members are shown down to this level; below it only required ones.
SHOWN_LEVELS = 2
MAX_DEPTH = 12
HEX = "01a1b2c3d4e5f60718293a4b5c6d7e8f"
EXAMPLE_TIME = "2026-01-31T12:00:00.000Z"
END_TIME = "2099-01-31T12:00:00.000Z"
SECONDS = 1_769_860_800
ADDRESS = "https://example.com"
# Values by the name of the member, where no schema says more.
TEXTS = {
    "access_token": "llmgat_" + "0" * 40,
    "action": "api_key.create",
    "actor": "operator",
    "agent": "curl/8.5.0",
    "alias": "gpt-4o-mini-2024-07-18",
    "allowedModel": "gpt-4o-mini",
    "apiKeyDescription": "CI",
    "arguments": "{}",
    "batch_multiplier": "0.5",
    "cacheMarkers": "automatic",
    "callbackSecret": "whsec_" + "0" * 32,
    "citation_quality": "accurate",
    "citation": "https://example.com/page",
    "code": "invalid_request",
    "content": "Hello!",
    "createdBy": "user_" + HEX,
    "date": "2026-01-31",
    "description": "CI",
    "device_code": "0" * 40,
    "document": "Green tea",
    "email": "ada@example.com",
    "encoding": "utf-8",
    "display_name": "GPT-4o mini",
    "error_type": "none",
    "event": "budget.spent",
    "finish": "stop",
    "family": "openai",
    "input": "Hello!",
    "kind": "user",
    "language": "en",
    "leftOut": "rules[0].when.weather",
    "publishedLeftOut": "rules[0].when.weather",
    "weekday": "monday",
    "measure": "spend",
    "page": "explore",
    "maskedToken": "llmgtwy_AbCd•••••",
    "message": "Done.",
    "mode": "credits",
    "model": "auto",
    "modelVersion": "gemini-2.5-flash",
    "month": "2026-01",
    "name": "Research",
    "newerMigrations": "0093_later_release",
    "note": "invoice 17",
    "operation": "chat",
    "owned_by": "openai",
    "password": "a long enough one",
    "path": "/v1/chat/completions",
    "pendingMigrations": "0092_unusual_days",
    "periodTimezone": "Europe/Berlin",
    "periodUsageDurationUnit": "day",
    "plan": "self-hosted",
    "preamble": "Answer in one sentence.",
    "priceVersion": "2026-01-31",
    "prompt": "Hello!",
    "provider": "openai",
    "query": "tea",
    "recoveryCode": "f95bf-7e99c",
    "redirectHost": "localhost",
    "reference": "order-4711",
    "requested_model": "auto",
    "requested_provider": "openai",
    "retention": "none",
    "role": "developer",
    "roleIn": "team_" + HEX,
    "routing": "auto",
    "ruleType": "deny_models",
    "scope": "organization",
    "service_tier": "default",
    "safety_mode": "CONTEXTUAL",
    "switchCommand": "./manage projects set proj_… --mode hybrid",
    "secret": "whsec_" + "0" * 32,
    "source": "my-app",
    "state": "active",
    "status": "active",
    "subject": "key_" + HEX,
    "system_fingerprint": "fp_llmgateway",
    "text": "Hello!",
    "timestamp": EXAMPLE_TIME,
    "token": "llmgtwy_" + "0" * 40,
    "type": "text",
    "underlying_used_model": "gpt-4o-mini",
    "uri": "otpauth://totp/llmgateway",
    "used_model": "openai/gpt-4o-mini",
    "used_provider": "openai",
    "userCode": "BCDF-GHJK",
    "user_code": "BCDF-GHJK",
    "costCenter": "4711",
    "department": "Research",
    "detectors": "payment_card",
    "guardrail": "cards",
    "masked": "4••• 1111",
    "patterns": "ACME-[0-9]{6}",
    "places": "prompt",
    "place": "prompt",
    "successor": "gpt-5.2",
    "changedBy": "user_" + HEX,
    "publishedBy": "user_" + HEX,
    "difficulty": "large",
    "publishedRule": "hard turns: the turn is large → claude-opus-5-5",
    "route": "house",
    "rule": "hard turns: the turn is large → claude-opus-5-5",
    "turn": "work",
    "wanted": "claude-haiku-5-5",
    "timezone": "Europe/Berlin",
    "terms": "Project Falcon",
    "currency": "USD",
    "title": "Research",
}
# A picture of one pixel, where an example needs one that can be loaded.
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABAQAAAAA3bvkkAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
# Names of files by the field of a form.
FILES = {"file": "audio.mp3"}
FILE = "image.png"
NUMBERS = {
    "periodUsageDurationValue": 1,
    "index": 0,
    "status": 200,
    "status_code": 200,
    "number": 0,
    "cost": 0.00012,
    "attempts": 1,
    "alertThreshold": 80,
}
NULLS = ("error", "incomplete_details", "stop_sequence", "upstreamError")
NULL = {"type": "null"}
TIMES = ("created", "created_at", "completed_at", "expires_at", "client_id_issued_at")
END_TIMES = ("expiresAt", "expires_at", "ends_at", "until")
PRICES = "Pricing"
PRICE = "0.000001"
TRUE = ("ok", "valid", "delivered", "ownerActive", "succeeded", "streaming", "success")
# Optional members that examples of requests have.
COMMON_OPTIONAL_MEMBERS = ("content", "input", "documents", "detectors", "requestId")
# Prefixes of ids by the name of the member; those of members named `id` by the title of their object.
PREFIXES = {
    "organization": "org_",
    "project": "proj_",
    "apikey": "key_",
    "member": "member_",
    "user": "user_",
    "team": "team_",
    "invitation": "inv_",
    "accessrule": "rule_",
    "providerkey": "pkey_",
    "discount": "disc_",
    "session": "session_",
    "responseobject": "resp_",
    "video": "video_",
}
PLURAL = re.compile(r"(?<=[xs])es$|s$")
TITLE_WORD = re.compile(r"[^a-z]|^(?:new|own)|(?:id|times)$")


def add_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Add an example to each body, JSON or plain response and stream of the description, and return the description."""
    sampler = Sampler(document["components"])
    for response in document["components"].get("responses", {}).values():
        _add_to_contents(sampler, response.get("content", {}), answers=True)
    for methods in document["paths"].values():
        for operation in methods.values():
            _add_to_contents(sampler, operation.get("requestBody", {}).get("content", {}), answers=False)
            for response in operation["responses"].values():
                _add_to_contents(sampler, response.get("content", {}), answers=True)
    return document


def _add_to_contents(sampler: "Sampler", contents: dict[str, Any], answers: bool) -> None:
    for media, content in contents.items():
        if "example" in content:
            continue
        if media in (JSON, SCIM_JSON, URLENCODED):
            content["example"] = sampler.sample(content["schema"], optional=answers)
        elif media == MULTIPART:
            content["example"] = sampler.sample_form(content["schema"])
        elif media == EVENTS:
            event = sampler.sample(content["x-event-schema"], optional=True)
            content["example"] = f"data: {orjson.dumps(event).decode()}\n\n"
        elif media == TEXT:
            content["example"] = sampler.sample(content["schema"], "text")


class Sampler:
    """Values for schemas; `components` are those that schemas refer to."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components

    def sample(self, schema: Any, name: str = "", level: int = 0, optional: bool = False) -> Any:
        """Return a value that the schema allows. With `optional` the first levels have optional members as well; an
        object without required members has them always."""
        schema = self._resolve(schema)
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        if "const" in schema:
            return schema["const"]
        if "allOf" in schema:
            parts = [self.sample(part, name, level, optional) for part in schema["allOf"]]
            return {key: value for part in parts for key, value in part.items()}
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return self.sample(_choose(choices, name), name, level, optional)
        kind = schema.get("type", "string")
        if isinstance(kind, list):
            kind = "null" if name in NULLS and "null" in kind else kind[0]
        if kind == "object":
            return self._sample_object(schema, level, optional)
        if kind == "array":
            return self._sample_list(schema, name, level, optional)
        return _sample_scalar(schema, kind, name)

    def sample_form(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the required fields of a form, with the first choice where it has several; a file is its name."""
        members = schema.get("properties", {})
        choice: dict[str, Any] = next(iter(schema.get("oneOf", ())), {})
        names = dict.fromkeys([*choice.get("required", ()), *schema.get("required", ())])
        return {name: self._sample_field(members[name], name) for name in names}

    def _sample_field(self, schema: dict[str, Any], name: str) -> Any:
        if is_file(schema):
            return FILES.get(name, FILE)
        if is_file(schema.get("items", {})):
            return [FILE]
        return self.sample(schema, name)

    def _resolve(self, schema: Any) -> dict[str, Any]:
        while isinstance(schema, dict) and "$ref" in schema:
            kind, _, component = schema["$ref"].removeprefix(COMPONENT).partition("/")
            schema = self._components[kind][component]
        if isinstance(schema, dict):
            return schema
        return {}

    def _sample_object(self, schema: dict[str, Any], level: int, optional: bool) -> dict[str, Any]:
        members = schema.get("properties", {})
        required = schema.get("required", [])
        names = [name for name in members if name in required or (name in COMMON_OPTIONAL_MEMBERS and not optional)]
        if level < SHOWN_LEVELS and (optional or not names):
            names = list(members)
        names += [name for name in required if name not in names]
        title = schema.get("title", "")
        value = {}
        for name in names:
            label = name
            if name == "id" and _find_word(title) in PREFIXES:
                label = f"{title}Id"
            value[name] = self.sample(members.get(name, {}), label, level + 1, optional)
        if title == PRICES:
            value = {name: PRICE if isinstance(price, str) else price for name, price in value.items()}
        if schema.get("minProperties") and not value:
            value["name"] = self.sample(schema.get("additionalProperties", {}), "name", level + 1, optional)
        return value

    def _sample_list(self, schema: dict[str, Any], name: str, level: int, optional: bool) -> list[Any]:
        if level >= MAX_DEPTH or ("items" not in schema and "prefixItems" not in schema):
            return []
        if "prefixItems" in schema:
            return [self.sample(item, name, level + 1, optional) for item in schema["prefixItems"]]
        item = self.sample(schema["items"], PLURAL.sub("", name), level + 1, optional)
        return [item] * max(1, schema.get("minItems", 1))


def is_file(schema: Mapping[str, Any]) -> bool:
    """Return whether a field of a form holds a file."""
    return schema.get("format") == "binary"


def _choose(choices: list[Any], name: str) -> Any:
    """Return null for a member that is usually null, the schema of a message of the user, or else the first one of a
    value."""
    if name in NULLS and NULL in choices:
        return NULL
    users = [choice for choice in choices if "UserMessage" in choice.get("$ref", "")]
    return next(choice for choice in (*users, *choices) if choice != NULL)


def _find_word(name: str) -> str:
    """Return the kind of object that a title or the name of an id stands for."""
    return TITLE_WORD.sub("", name.lower().replace("_", ""))


def _sample_scalar(schema: dict[str, Any], kind: str, name: str) -> Any:
    if kind == "boolean":
        return name in TRUE
    if kind == "null":
        return None
    if kind in ("integer", "number"):
        return _sample_number(schema, name)
    return _sample_text(schema, name)


def _sample_number(schema: dict[str, Any], name: str) -> float:
    if name in TIMES:
        return SECONDS
    if name in NUMBERS:
        return NUMBERS[name]
    minimum = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    maximum = schema.get("maximum", schema.get("exclusiveMaximum", 12))
    sample: float = max(minimum, min(12, maximum))
    return sample


def _sample_text(schema: dict[str, Any], name: str) -> str:
    if schema.get("format") == "date-time":
        return END_TIME if name in END_TIMES else EXAMPLE_TIME
    if schema.get("format") == "uri" or name.lower().endswith(("url", "uri_complete", "verification_uri", "link")):
        return ADDRESS
    word = _find_word(name)
    if word in PREFIXES and name.lower().endswith("id"):
        text = PREFIXES[word] + HEX
    elif name.lower().endswith("id") and name not in TEXTS:
        text = HEX
    else:
        text = TEXTS.get(name, name.replace("_", " ") or "text")
    text = text.ljust(schema.get("minLength", 0), "0")
    return text[: schema.get("maxLength", len(text))]
