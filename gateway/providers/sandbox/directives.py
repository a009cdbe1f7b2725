"""The models of the sandbox, and directives in a prompt, `[[sandbox: name=value flag]]`."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.providers.sandbox.response import refuse

BRACKET = re.compile(r"\[\[sandbox:([^\[\]]*)\]\]", re.IGNORECASE)
MAX_BRACKETS = 1000
FINISHES = ("stop", "length", "tool_calls", "content_filter")
MAX_TOKENS = 20_000
MAX_SECONDS = 3600.0


class Directives(Struct, frozen=True):
    """The requested behaviour of an answer; docs/sandbox.md has a table. Positions in a stream (`malformed`, `cut`,
    `close`, `stall`, `error_event`) count chunks from 1, including the opening chunk; None: not requested. `timeout` is
    in seconds; 0: until the caller's deadline."""

    status: int = 0
    code: str = ""
    retry_after: float | None = None
    refuse_connection: bool = False
    timeout: float | None = None
    wrong_content_type: bool = False
    empty: bool = False
    no_choices: bool = False
    malformed: int | None = None
    cut: int | None = None
    close: int | None = None
    stall: int | None = None
    error_event: int | None = None
    no_usage: bool = False
    no_done: bool = False
    slow_start: float = 0.0
    silent: float = 0.0
    takes: float | None = None
    pace: float = 0.0
    rate: float = 0.0
    chunk: int = 1
    tokens: int | None = None
    tool: tuple[str, ...] = ()
    parallel: int = 0
    reasoning: int | None = None
    cached: int = 0
    finish: str = ""
    refusal: bool = False
    flag: tuple[str, ...] = ()

    @property
    def pace_s(self) -> float:
        """Seconds between two chunks: `pace`, otherwise the time of `chunk` tokens at `rate` tokens per second."""
        if self.pace:
            return self.pace / 1000
        if self.rate:
            return self.chunk / self.rate
        return 0.0


class Bracket(Struct, frozen=True):
    """The settings in a pair of brackets, and the conditions under which they apply."""

    settings: Mapping[str, Any]
    only: tuple[str, ...] = ()
    attempt: int = 0
    key: str = ""


Reader = Callable[[str, str], Any]


def _whole(low: int, high: int) -> Reader:
    def read(name: str, value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise _bad(name, f"a whole number from {low} to {high}")
        return int(value)

    return read


def _number(high: float) -> Reader:
    def read(name: str, value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value) or float(value) > high:
            raise _bad(name, f"a number from 0 to {high:g}")
        return float(value)

    return read


def _names(name: str, value: str) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part)


def _word(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.:-]{1,64}", value):
        raise _bad(name, "a word of at most 64 letters, digits and . : _ -")
    return value


def _finish(name: str, value: str) -> str:
    if value not in FINISHES:
        raise _bad(name, "one of " + ", ".join(FINISHES))
    return value


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise _bad(name, "true or false, or the bare name")
    return value == "true"


# name -> (reader, the default value of the bare name; "": a value is required)
READERS: dict[str, tuple[Reader, str]] = {
    "status": (_whole(400, 599), ""),
    "code": (_word, ""),
    "retry_after": (_number(86_400), ""),
    "refuse_connection": (_flag, "true"),
    "timeout": (_number(MAX_SECONDS), "0"),
    "wrong_content_type": (_flag, "true"),
    "empty": (_flag, "true"),
    "no_choices": (_flag, "true"),
    "malformed": (_whole(1, MAX_TOKENS), "1"),
    "cut": (_whole(0, MAX_TOKENS), "0"),
    "close": (_whole(0, MAX_TOKENS), "0"),
    "stall": (_whole(0, MAX_TOKENS), "0"),
    "error_event": (_whole(0, MAX_TOKENS), "0"),
    "no_usage": (_flag, "true"),
    "no_done": (_flag, "true"),
    "slow_start": (_number(MAX_SECONDS), ""),
    "silent": (_number(MAX_SECONDS), ""),
    "takes": (_number(MAX_SECONDS), ""),
    "pace": (_number(600_000), ""),
    "rate": (_number(1_000_000), ""),
    "chunk": (_whole(1, 10_000), ""),
    "tokens": (_whole(0, MAX_TOKENS), ""),
    "tool": (_names, ""),
    "parallel": (_whole(1, 32), "2"),
    "reasoning": (_whole(0, MAX_TOKENS), "64"),
    "cached": (_whole(0, 10_000_000), ""),
    "finish": (_finish, ""),
    "refusal": (_flag, "true"),
    "flag": (_names, ""),
    "only": (_names, ""),
    "attempt": (_whole(1, 1000), "1"),
    "key": (_word, ""),
}


def read_brackets(text: str) -> tuple[Bracket, ...]:
    """Return the first MAX_BRACKETS directives of a text in order. InvalidRequest for an unknown name or an invalid
    value."""
    return tuple(_bracket(match.group(1)) for match in islice(BRACKET.finditer(text), MAX_BRACKETS))


def strip(text: str) -> str:
    """Return the text without its directives."""
    if "[[" in text:
        return BRACKET.sub("", text).strip()
    return text


def apply(base: Directives, brackets: Iterable[Bracket], model: str, attempts: Mapping[str, int]) -> Directives:
    """Return `base` with every bracket that applies to `model`; `attempts` is the number of this attempt by key."""
    result = base
    for bracket in brackets:
        spent = bracket.attempt and attempts.get(bracket.key, 0) > bracket.attempt
        if concerns(bracket, model) and not spent:
            result = replace(result, **bracket.settings)
    return result


def concerns(bracket: Bracket, model: str) -> bool:
    """Whether the bracket applies to this model."""
    return not bracket.only or model in bracket.only


def _bracket(inside: str) -> Bracket:
    settings = dict(_setting(word) for word in inside.split())
    only = settings.pop("only", ())
    attempt = settings.pop("attempt", 0)
    key = settings.pop("key", "")
    if bool(attempt) != bool(key):
        raise refuse(
            "Sandbox directives `attempt` and `key` go together, e.g. [[sandbox: status=503 attempt=1 key=a]]."
        )
    return Bracket(settings, only, attempt, key)


def _setting(word: str) -> tuple[str, Any]:
    name, _, value = word.partition("=")
    name = name.lower()
    if name not in READERS:
        raise refuse(f"Unknown sandbox directive {name[:64]!r}. Known are: {', '.join(READERS)}.")
    reader, bare = READERS[name]
    if not (value or bare):
        raise refuse(f"The sandbox directive {name!r} needs a value.")
    return name, reader(name, value or bare)


def _bad(name: str, expected: str) -> Exception:
    return refuse(f"The sandbox directive {name!r} must be {expected}.")


# The models of the sandbox, by external id.

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
