"""Moderations: a category is flagged when its name is a word of the input, or by directive.

Source: OpenAI API reference, "Create moderation".
"""

import hashlib
import re
from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, check_fields, check_part, of, wrong_type
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.response import Response, refuse

CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)
FLAGGED_SCORE = 0.98
CLEAN_SCORE = 0.0001
PARTS = ("text", "image_url")


def check_moderations(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "input"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: every text of the input."""
    return "\n".join(_read_texts(body["input"]))


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body. Content parts are judged together, separate texts individually."""
    unknown = [name for name in directives.flag if name not in CATEGORIES]
    if unknown:
        raise refuse(f"The sandbox directive 'flag' contains an unknown category {unknown[0][:64]!r}.", "input")
    value = body["input"]
    texts = _read_texts(value)
    only_texts = isinstance(value, str) or all(isinstance(part, str) for part in value)
    judged = texts if only_texts else ["\n".join(texts)]
    whole = {
        "id": "modr-" + hashlib.sha256(orjson.dumps(value)).hexdigest()[:32],
        "model": body["model"],
        "results": [_judge(strip(text), directives.flag) for text in judged],
    }
    return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "results": []}))


def _judge(text: str, flags: tuple[str, ...]) -> dict[str, Any]:
    words = set(re.findall(r"[a-z/-]+", text.lower()))
    flagged = {name: name in words or name in flags for name in CATEGORIES}
    return {
        "flagged": any(flagged.values()),
        "categories": flagged,
        "category_scores": {name: FLAGGED_SCORE if hit else CLEAN_SCORE for name, hit in flagged.items()},
        "category_applied_input_types": {name: ["text"] if hit else [] for name, hit in flagged.items()},
    }


def _read_texts(value: str | list[Any]) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [part if isinstance(part, str) else part.get("text", "") for part in value]


def _input(value: Any, param: str) -> None:
    of(str, list)(value, param)
    if value == []:
        raise refuse(f"Invalid '{param}': empty array. Expected an array with minimum length 1.", param, "empty_array")
    for place, part in enumerate(value if isinstance(value, list) else ()):
        if isinstance(part, dict):
            check_part(part, PARTS, f"{param}[{place}]")
        elif not isinstance(part, str):
            raise wrong_type(part, f"{param}[{place}]", "a string or an object")


FIELDS: dict[str, Check] = {"model": of(str), "input": _input}
