"""Decisions: chooses the option, level or truth value with the most words in common with the state, or the first
option.
"""

from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, check_fields, of
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.prose import count
from gateway.providers.sandbox.response import Response


def check_decisions(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "state", "questions"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the state."""
    return _text(body["state"])


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body."""
    words = set(strip(_text(body["state"])).lower().split())
    answers = {name: _decide(question, words) for name, question in body["questions"].items()}
    whole: dict[str, Any] = {"model": body["model"], "answers": answers}
    if not directives.no_usage:
        whole["usage"] = {
            "input_tokens": count(_text(body["state"])) + count(_text(body["questions"])),
            "output_tokens": 0,
        }
    return Response(orjson.dumps(whole), bare=orjson.dumps({"answers": {}}))


def _decide(question: dict[str, Any], words: set[str]) -> dict[str, Any]:
    kind = question["type"]
    criteria = question.get("criteria") or {"true": "yes", "false": "no"}
    names = list(criteria) if isinstance(criteria, dict) else [str(level) for level in range(len(criteria))]
    texts = [f"{name} {criteria[name]}" for name in names] if isinstance(criteria, dict) else criteria
    weights = [1 + 9 * len(words & set(_text(text).lower().split())) for text in texts]
    odds = {name: round(weight / sum(weights), 6) for name, weight in zip(names, weights, strict=True)}
    best = max(odds, key=lambda name: odds[name])
    if kind == "noul":
        return {"type": kind, "noul": odds.get("true", 0.5), "probabilities": odds, "confidence": odds[best]}
    decision: dict[str, Any] = {"type": kind, "probabilities": odds, "confidence": odds[best]}
    if kind == "score":
        legend = {name: _text(text) for name, text in zip(names, texts, strict=True)}
        return decision | {"score": int(best), "legend": legend}
    return decision | {"choice": best}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


FIELDS: dict[str, Check] = {"model": of(str), "state": of(str, dict, list), "questions": of(dict)}
