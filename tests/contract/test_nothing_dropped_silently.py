"""Nothing is dropped silently: every part of a request reaches the vendor, or a warning names the part that does not.

The tests read the goldens, which `test_every_protocol` compares with the real requests and answers.
"""

import base64
import json
from typing import Any

import pytest
from contract import goldens
from contract.cases import IMAGE_URL, PDF, PNG, WAV
from contract.vendors import SIGNED, VENDORS
from fakes.anthropic_checks import sign

SURFACES = ("chat", "messages", "responses")
PAPER_URL = "https://papers.example/a.pdf"

# The file at an address arrives as bytes where a vendor loads no addresses.
BYTES = {IMAGE_URL: PNG, PAPER_URL: PDF}

# Case → what must be found in the requests that vendors get, word for word, on every surface that has the case.
EVIDENCE: dict[str, tuple[str, ...]] = {
    "system": ("Be brief.", "Speak Norwegian."),
    "instructions": ("Be brief.",),
    "system and developer": ("Be brief.", "Speak Norwegian.", "Hello", "Now be loud."),
    "odd role order": ("I spoke first.", "One.", "Two.", "Three."),
    "answer to be continued": ("Hello", "Good"),
    "past calls": ("Rain.", "Wind.", "And then?"),
    "history of tools without tools": ("Rain.", "Wind.", "And then?"),
    "text and calls": ("Let me see.", "Rain."),
    "tool loop": ("Oslo", "Rain."),
    "parallel calls": ("Oslo", "Rome", "Lima", "clock"),
    "must call one": ('"clock"',),
    "image from a tool": ("See:", PNG),
    "image alone from a tool": (PNG,),
    "PDF from a tool": (PDF,),
    "custom tool": ("patch",),
    "tools of a namespace": ("mcp__files", "read"),
    "deferred tools": ("weather",),
    "a maker's own tool": ("bash_20250124", "code_interpreter"),
    "image by URL": (IMAGE_URL,),
    "image as bytes": (PNG,),
    "image for the system": (PNG, "Like this:"),
    "PDF": (PDF,),
    "PDF alone": (PDF,),
    "PDF by URL": (PAPER_URL,),
    "plain document": ("Words.",),
    "document with context": ("Written in 1905.", PDF),
    "search result": ("It rains.", "https://news.example/today"),
    "sound": (WAV,),
    "file by id": ("file-1",),
    "schema": ("people",),
    "schema and tools": ("people", "weather"),
    "JSON object": ("Answer in JSON.",),
    "refusal": ("I cannot help with that.",),
    "stop sequence": ("END",),
    "search": ("search",),
    "search and tools": ("search", "weather"),
    "names": ("ann", "bo"),
    "output effort": ("low",),
    "pro mode": ('"pro"',),
    "two choices": (": 2",),
}
# (value in the request, its name in a warning) for optional features that a vendor may lack.
WISHES: dict[str, tuple[tuple[str, str], ...]] = {
    "hot": (("0.9", "top_p"), ("enalty", "penalty")),
    "verbosity and user": (("verbosity", "verbosity"),),
    "one call at a time": (("arallel", "parallel_tool"),),
    "one search at most": (("max_", "max_uses"),),
    "search": (("news.example", "omain"),),
}
# Hints that change no answer: a vendor that lacks them does not receive them, and the caller receives a warning.
HINTS = {"cache marks": ("openai", "responses", "both", "google")}
WAYS = [(surface, vendor) for surface in SURFACES for vendor in VENDORS]
KEPT_SIGNATURES = {
    "anthropic": (sign("I must look."), "gAAAsealed=="),
    "bedrock": (SIGNED, base64.b64encode(b"gAAAsealed==").decode()),
    "google": ('"thoughtSignature": "++++/',),
    "responses": ('"encrypted_content": "gAAAA-1.0+/é=="',),
}


def fields_of_vendor(golden: dict[str, Any]) -> str:
    return json.dumps(golden["maker"], ensure_ascii=False)


def texts_of_caller(golden: dict[str, Any]) -> str:
    """All warnings and refusals that the caller sees."""
    turns = golden["caller"]
    return " ".join(
        text for one in turns for text in (*one.get("warnings", ()), one.get("error", {}).get("message", ""))
    )


def refused(golden: dict[str, Any]) -> bool:
    """Whether the caller got a typed error that is theirs to mend, and the vendor nothing."""
    last = golden["caller"][-1]
    return last.get("status") == 400 and bool(last["error"]["code"]) and not golden["maker"]


@pytest.mark.parametrize(("surface", "vendor"), WAYS)
def test_each_sent_field_arrives_or_is_refused_or_reported(surface: str, vendor: str) -> None:
    found = {name: goldens.find(surface, vendor, name) for name in EVIDENCE}
    cases = {name: golden for name, golden in found.items() if golden is not None}
    lost = []
    for name, golden in cases.items():
        sent = fields_of_vendor(golden)
        missing = [text for text in EVIDENCE[name] if text not in sent and BYTES.get(text, text) not in sent]
        if name == "a maker's own tool" and len(missing) < len(EVIDENCE[name]):
            continue  # each surface's own is one of them
        if missing and not refused(golden) and not texts_of_caller(golden):
            lost.append((name, missing))
    assert lost == []


@pytest.mark.parametrize("name", list(WISHES))
@pytest.mark.parametrize(("surface", "vendor"), WAYS)
def test_an_option_that_a_vendor_lacks_is_named_to_the_caller(surface: str, vendor: str, name: str) -> None:
    golden = goldens.find(surface, vendor, name)
    if golden is None or refused(golden):
        return
    wishes = WISHES[name] if not (name == "hot" and surface != "chat") else WISHES[name][:1]
    if name == "search" and surface == "messages" and vendor == "anthropic":
        wishes = ()
    if "search" in name and "tools: web_search was left out" in texts_of_caller(golden):
        wishes = ()  # with all that was said of it
    for wire, text in wishes:
        assert wire in fields_of_vendor(golden) or text in texts_of_caller(golden)


@pytest.mark.parametrize("vendor", list(KEPT_SIGNATURES))
@pytest.mark.parametrize("surface", SURFACES)
def test_signed_reasoning_comes_back_to_its_vendor_byte_for_byte(surface: str, vendor: str) -> None:
    second = json.dumps(goldens.read(surface, vendor, "reasoning in a tool loop")["maker"][1], ensure_ascii=False)
    assert [mark for mark in KEPT_SIGNATURES[vendor] if mark not in second] == []


@pytest.mark.parametrize("vendor", list(VENDORS))
@pytest.mark.parametrize("surface", ["chat", "messages"])
def test_cache_marks_stand_where_they_stood_or_are_no_more_than_a_hint(surface: str, vendor: str) -> None:
    golden = goldens.read(surface, vendor, "cache marks")
    sent = fields_of_vendor(golden)
    if vendor in HINTS["cache marks"]:
        assert "cache" not in sent and not refused(golden) and "cache_control" in texts_of_caller(golden)
    else:
        assert sent.count('"ttl": "1h"') == 2
        assert sent.count("cache_control") + sent.count("cachePoint") == 3


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
@pytest.mark.parametrize(("surface", "vendor"), WAYS)
def test_a_vendors_error_is_the_callers_only_if_it_is_about_the_request(surface: str, vendor: str, status: int) -> None:
    (turn,) = goldens.read(surface, vendor, f"status {status}")["caller"]
    assert turn["status"] == {400: 400, 429: 429, 503: 529}.get(status, 502)
    assert len(turn["error"]["message"]) > 5 and turn["error"]["code"]


# One line for each loss: (surface, vendor, case, text of the caller's warning).
LOSSES = [
    ("chat", "anthropic", "file by id", "files uploaded elsewhere"),
    ("chat", "google", "file by id", "does not know this file"),
    ("chat", "bedrock", "file by id", "does not load URLs"),
    ("chat", "bedrock", "search", "no tool of type web_search"),
    ("chat", "responses", "sound", "part of type audio"),
    ("chat", "anthropic", "sound", "part of type audio"),
    ("chat", "responses", "two choices", "one choice per request"),
    ("chat", "anthropic", "two choices", "one choice per request"),
    ("chat", "bedrock", "two choices", "n has no counterpart"),
    ("chat", "responses", "hot", "frequency_penalty"),
    ("chat", "anthropic", "hot", "top_p was left out"),
    ("chat", "anthropic", "verbosity and user", "verbosity"),
    ("chat", "google", "verbosity and user", "verbosity"),
    ("chat", "bedrock", "verbosity and user", "verbosity"),
    ("chat", "google", "one call at a time", "parallel_tool_calls"),
    ("chat", "bedrock", "one call at a time", "parallel_tool_calls"),
    ("chat", "google", "no reasoning", "cannot stop reasoning"),
    ("chat", "openai", "search", "Domain lists and max_uses"),
    ("chat", "google", "search", "allowed_domains"),
    ("chat", "anthropic", "names", "Names of participants"),
    ("chat", "google", "names", "Names of participants"),
    ("chat", "bedrock", "names", "Names of participants"),
    ("chat", "responses", "names", "Names of participants"),
    ("chat", "openai", "pro mode", "reasoning mode pro"),
    ("messages", "openai", "document with context", "Citations of documents"),
    ("messages", "responses", "document with context", "Citations of documents"),
    ("messages", "google", "document with context", "Citations of documents"),
    ("messages", "openai", "a maker's own tool", "bash_20250124 was left out"),
    ("messages", "responses", "stop sequence", "stop_sequences has no counterpart"),
    ("messages", "openai", "stop sequence", "first 4 stop sequences"),
    ("messages", "google", "stop sequence", "first 5 stop sequences"),
    ("messages", "openai", "hot", "top_k"),
    ("messages", "anthropic", "hot", "top_p was left out"),
    ("messages", "openai", "adaptive reasoning", "output effort"),
    ("responses", "anthropic", "a maker's own tool", "code_interpreter was left out"),
    ("responses", "google", "one search at most", "max_uses"),
    ("responses", "openai", "one search at most", "max_uses"),
]


@pytest.mark.parametrize(("surface", "vendor", "name", "text"), LOSSES)
def test_each_known_loss_is_reported(surface: str, vendor: str, name: str, text: str) -> None:
    assert text in texts_of_caller(goldens.read(surface, vendor, name))
