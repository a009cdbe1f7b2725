"""docs/errors.md lists every error code that the gateway can send, and no others."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway import errors
from gateway.accounts import custom_providers, key_caps
from gateway.admin import account_changes, held_limits
from gateway.application import app  # noqa: F401 - the whole gateway, so that every kind of error is known
from gateway.callers import throttle as throttle_module
from gateway.catalogue import video_shapes
from gateway.dialects.anthropic import UNTHREADED
from gateway.guardrails import guarded_texts
from gateway.limits import cost_bound
from gateway.neutral.videos import CONTENT_FILTER
from gateway.providers import failures
from gateway.routing import capabilities, resolve
from gateway.surfaces.management import device_routes
from gateway.surfaces.management.outcome_routes import NOT_COMPARED

ROOT = Path(__file__).resolve().parents[2]
GATEWAY = ROOT / "gateway"
# Excluded: the sandbox acts as a provider, and the command line reads responses; their codes are not the gateway's.
ELSEWHERE = ("cli", "providers/sandbox")
# Calls with a `code` argument that create no error: a provider's code, the result of a check, an OAuth code.
REPLACE = {"replace", "dataclasses.replace", "structs.replace"}
NO_ERRORS = REPLACE | {"Explanation", "dict", "page", "request.response_url", "CloseConnection"}
LIMITS = {*cost_bound.CODES.values(), cost_bound.MID_STREAM, "key_period_limit_reached", "key_limit_reached"}
# (file, expression) of codes in variables → possible values. None: the value is passed by callers that are checked
# too.
VARIABLE = {
    ("routing/resolve.py", "NOT_SERVED"): {resolve.NOT_SERVED},
    ("batches/project_batches.py", "error.code"): {"invalid_line", "too_many_lines", "too_many_payers", "empty_file"},
    ("batches/project_batches.py", "refusals[0].code"): LIMITS,
    # The code of the refusal of a response that is made in the background, or this one.
    ("surfaces/responses/background.py", "str(error.get('code') or 'server_error')"): {"server_error"},
    # Callers pass none, or the default of the parameter, which is found where that stands.
    ("batches/native_parts.py", "code"): None,
    # The errors of a batch: the check of the batch sets their codes.
    ("surfaces/openai/batches.py", "e.code"): set(),
    ("limits/cost_bound.py", "code or self._code()"): LIMITS,
    ("limits/cost_bound.py", "code"): {cost_bound.MID_STREAM},
    ("routing/capabilities.py", "code"): set(capabilities.CODES.values()) | {capabilities.UNSUPPORTED},
    ("engine/stored_responses.py", "code"): {"previous_response_not_found"},
    ("surfaces/responses/socket_memory.py", "code"): {"previous_response_not_found"},
    ("callers/authentication.py", "self.code"): None,
    ("routing/candidate_filter.py", "error.code"): None,
    ("surfaces/mcp/json_rpc.py", "error.code"): None,
    ("surfaces/openai/realtime_events.py", "code"): None,
    ("providers/google/live/session_setup.py", "code"): None,
    # The error of an attempt that another one of its request made superfluous: its caller gets the other's answer.
    ("engine/hedging.py", "SUPERSEDED"): set(),
    # Codes from another gateway's response, which are these.
    ("surfaces/mcp/generation.py", "code"): set(),
    # The response to an error that already has a code.
    ("surfaces/blueprints.py", "operation"): None,
    ("callers/throttle.py", "gate.code"): {throttle_module.ThrottleGate("", "", 0, 0).code, account_changes.CODE},
    ("accounts/key_caps.py", "CODE"): {key_caps.CODE},
    ("admin/held_limits.py", "CODE"): {held_limits.CODE},
    ("admin/owned_limit_changes.py", "CODE"): {held_limits.CODE},
    ("surfaces/management/outcome_routes.py", "NOT_COMPARED"): {NOT_COMPARED},
    ("guardrails/guarded_texts.py", "BLOCKED"): {guarded_texts.BLOCKED},
    ("guardrails/guarded_texts.py", "NOT_READABLE"): {guarded_texts.NOT_READABLE},
    ("accounts/custom_providers.py", "CAP_CODE"): {custom_providers.CAP_CODE},
    # The provider's own code for an invalid request; the page says so.
    ("providers/failures.py", "TOO_LONG"): {failures.TOO_LONG},
    ("providers/failures.py", "code"): {"invalid_request", "request_too_large"},
    ("providers/openai/responses_reply.py", "cause.code"): set(),
    ("surfaces/anthropic/schema.py", "UNTHREADED"): {UNTHREADED},
    ("catalogue/video_shapes.py", "f'unsupported_{word}'"): {
        f"unsupported_{word}" for word in (*video_shapes.CODES.values(), "input")
    },
    ("providers/media_codecs.py", "CONTENT_FILTER"): {CONTENT_FILTER},
    # The code of an ended job: the provider's own, or one of these.
    ("videos/ending.py", "code"): {
        CONTENT_FILTER,
        "timeout",
        "poll_error",
        "canceled",
        "video_failed",
        "video_expired",
    },
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(GATEWAY.rglob("*.py")):
        name = path.relative_to(GATEWAY).as_posix()
        text = path.read_text()
        # A module without these words creates no code, and parsing all modules takes a second.
        if not name.startswith(ELSEWHERE) and re.search(r"\bcode\b|\b_refuse\b|\bRefused\b", text):
            yield name, ast.parse(text)


def texts(node: ast.expr) -> set[str]:
    """Return the codes that an expression spells out."""
    match node:
        case ast.Constant(value=str(text)) if text:
            return {text}
        case ast.IfExp(body=one, orelse=other):
            return texts(one) | texts(other)
        case ast.BoolOp(values=values):
            return {text for value in values for text in texts(value)}
    return set()


def given(node: ast.AST) -> Iterator[ast.expr]:
    """Return the expressions of codes in one node of a module: keywords, defaults, members of an envelope."""
    match node:
        case ast.Call(func=func, args=[_, _, third, *_]) if ast.unparse(func) == "Refused":
            yield third
        case ast.Call(func=func, args=[_, second, *_]) if ast.unparse(func) == "_refuse":
            yield second
        case ast.Call(func=func, keywords=keywords) if ast.unparse(func) not in NO_ERRORS:
            yield from (keyword.value for keyword in keywords if keyword.arg == "code")
        case ast.FunctionDef(args=arguments):
            placed = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
            names = placed[-len(arguments.defaults) :] if arguments.defaults else []
            yield from (value for name, value in zip(names, arguments.defaults, strict=True) if name == "code")
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            yield from (v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "code" and texts(v))


def kinds(kind: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    yield kind
    for under in kind.__subclasses__():
        yield from kinds(under)


@cache
def sent() -> tuple[set[str], list[str]]:
    """Return every code that the gateway can send, and the places with codes that this test cannot determine."""
    found = {kind.code for kind in kinds(errors.GatewayError)} | {word for word, _ in device_routes.REFUSALS.values()}
    unknown = []
    for name, tree in modules():
        places = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.FunctionDef | ast.Dict))
        for expression in (one for node in places for one in given(node)):
            told, written = texts(expression), ast.unparse(expression)
            place = (name, written)
            if place in VARIABLE:
                told |= VARIABLE[place] or set()
            elif not told and written not in ("None", "''") and not written.startswith("*REFUSALS"):
                unknown.append(f"{name}: code={written}")
            found |= told
    return found, unknown


def listed() -> set[str]:
    """Return the codes of the page, from the second column of its tables."""
    rows = re.findall(r"^\| \d[^|]* \| ([^|]+) \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    return {code for cell in rows for code in re.findall(r"`(\w+)`", cell)}


@pytest.mark.slow
def test_every_place_that_makes_a_code_is_understood() -> None:
    assert sent()[1] == []


def test_every_code_that_can_be_sent_is_documented() -> None:
    # A disconnected caller reads nothing; "error" is the fallback for an error without a code, which does not exist.
    assert sent()[0] - listed() - {"request_cancelled", "error"} == set()


def test_every_documented_code_can_be_sent() -> None:
    assert listed() - sent()[0] == set()


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ("raise NotFound('x', code='gone_fishing')", {"gone_fishing"}),
        ("raise Gone('x', code='one' if early else 'two')", {"one", "two"}),
        ("Refused(Gone, 'x', 'blocked')", {"blocked"}),
        ("MORE = {'status': 426, 'code': 'no_socket'}", {"no_socket"}),
        ("def find(ident, code='absent'): ...", {"absent"}),
        ("Explanation(code='theirs')", set()),
    ],
)
def test_the_finder_finds_codes(source: str, codes: set[str]) -> None:
    found = (one for node in ast.walk(ast.parse(source)) for one in given(node))
    assert {text for one in found for text in texts(one)} == codes
