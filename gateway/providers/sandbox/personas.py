"""The models of the sandbox, by external id."""

from typing import Any, Literal

from msgspec import Struct

from gateway.providers.sandbox.directives import Directives
from gateway.providers.sandbox.response import refuse

Voice = Literal["echo", "template", "tools", "reasoning", "json"]
COMMON_OPERATIONS = (
    *(
        "chat",
        "embeddings",
        "moderations",
        "speech",
        "transcriptions",
        "translations",
        "rerank",
        "ocr",
        "decisions",
        "images",
        "image_edits",
        "videos",
    ),
)


class Persona(Struct, frozen=True):
    """The way in which a model answers (`voice`), its operations, and its faults unless a directive in the prompt
    overrides them."""

    voice: Voice = "template"
    operations: tuple[str, ...] = ("chat",)
    directives: Directives = Directives()


def _failing(**directives: Any) -> Persona:
    return Persona(operations=COMMON_OPERATIONS, directives=Directives(**directives))


PERSONAS: dict[str, Persona] = {
    "echo": Persona("echo"),
    "template": Persona("template"),
    "tools": Persona("tools"),
    "reasoning": Persona("reasoning"),
    "json": Persona("json"),
    "slow": Persona("template", directives=Directives(silent=2.0, pace=200.0)),
    "embed": Persona(operations=("embeddings",)),
    "moderate": Persona(operations=("moderations",)),
    "realtime": Persona(operations=("realtime",)),
    "speak": Persona(operations=("speech",)),
    "draw": Persona(operations=("images", "image_edits")),
    "film": Persona(operations=("videos",)),
    "rerank": Persona(operations=("rerank",)),
    "read": Persona(operations=("ocr",)),
    "decide": Persona(operations=("decisions",)),
    "transcribe": Persona(operations=("transcriptions", "translations")),
    "cut": _failing(cut=3),
    "malformed": _failing(malformed=2),
    "empty": _failing(empty=True),
    "fail": _failing(status=500),
    "fail-400": _failing(status=400),
    "fail-401": _failing(status=401),
    "fail-402": _failing(status=402),
    "fail-403": _failing(status=403),
    "fail-404": _failing(status=404),
    "fail-429": _failing(status=429, retry_after=1.0),
    "fail-500": _failing(status=500),
    "fail-503": _failing(status=503, retry_after=1.0),
    "fail-timeout": _failing(timeout=1.0),
    "fail-refused": _failing(refuse_connection=True),
}


def find(model: str, operation: str) -> Persona:
    """Return the persona for an external id. InvalidRequest (404) for an unknown id, (400) for an unsupported
    operation."""
    persona = PERSONAS.get(model)
    if persona is None:
        message = f"The model '{model[:100]}' does not exist. The sandbox has: {', '.join(PERSONAS)}."
        raise refuse(message, "model", "model_not_found", 404)
    if operation not in persona.operations:
        message = f"The sandbox model '{model}' serves {' and '.join(persona.operations)}, not {operation}."
        raise refuse(message, "model", "unsupported_operation")
    return persona
