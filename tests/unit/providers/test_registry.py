"""The protocols that are spoken are those that catalogue entries may name."""

from typing import Any

import orjson
import pytest

from gateway.catalogue.entries import PROTOCOLS, Mapping, Provider
from gateway.catalogue.field_checks import known_quirks
from gateway.clock import Clock
from gateway.configuration.settings import ROOT, load
from gateway.neutral.chat import ChatRequest, Conversation, ResponseFormat, Sampling
from gateway.neutral.operations import names
from gateway.neutral.parts import CacheMark, Message, Text
from gateway.neutral.request import Requirements
from gateway.providers import quirks
from gateway.providers.openai import responses
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import FACTORIES, make_protocols
from gateway.transport import Transport

PROVIDERS = ROOT / "gateway" / "providers"
SETTINGS = load({"GATEWAY_ENV": "test"})
MADE = make_protocols(Transport(SETTINGS.timeouts, SETTINGS.security), Clock())
CLAUDE = "anthropic.claude-sonnet-4-5-v1:0"  # Bedrock's format has cache marks for this family
INSTRUCTION = Message("system", (Text("Be brief."),))
TEXT = "Answer in JSON."
PLAIN = Conversation((INSTRUCTION, Message("user", (Text(TEXT),))))
# Conversations with a part that some formats have no field for.
CONVERSATIONS = {
    "cache_marks": Conversation((INSTRUCTION, Message("user", (Text(TEXT, cache=CacheMark()),)))),
    "json_object": Conversation(PLAIN.messages, response_format=ResponseFormat("json_object")),
    "penalties": Conversation(PLAIN.messages, sampling=Sampling(presence_penalty=0.5)),
}


def test_every_protocol_that_an_entry_may_name_has_an_implementation():
    assert set(PROTOCOLS) == set(FACTORIES)


def test_every_quirk_that_an_entry_may_name_has_an_implementation():
    texts = [path.read_text() for path in PROVIDERS.rglob("*.py")]
    functions = set(quirks.QUIRKS) | set(responses.QUIRKS)
    named = {name for name in known_quirks() if any(f'= "{name}"' in text for text in texts)}
    assert known_quirks() == functions | named


def test_a_protocol_is_made_under_its_own_name_with_codecs_of_known_operations():
    assert {name: wire.name for name, wire in MADE.items()} == {name: name for name in FACTORIES}
    assert {name for wire in MADE.values() for name in wire.codecs} <= set(names())


def members_of(value: Any) -> set[str]:
    """Return the names of all members of a JSON value."""
    if isinstance(value, dict):
        return set(value).union(*map(members_of, value.values()))
    if isinstance(value, list):
        return set().union(*map(members_of, value))
    return set()


def fields_sent(protocol: str, conversation: Conversation) -> set[str]:
    target = Target(
        Provider("acme", "Acme", protocol),
        Mapping("acme", "m", CLAUDE, json_output=True),
        Credential("k"),
        "http://127.0.0.1:1/v1",
        trusted=True,
    )
    request = ChatRequest("m", Requirements(), lambda: conversation)
    return members_of(orjson.loads(MADE[protocol].codecs["chat"].write(request, target).body))


@pytest.mark.parametrize("protocol", [name for name, wire in MADE.items() if "chat" in wire.codecs])
def test_a_format_declares_the_parts_of_a_request_that_it_has_no_field_for(protocol: str) -> None:
    fields = fields_sent(protocol, PLAIN)
    without_field = {part for part, words in CONVERSATIONS.items() if fields_sent(protocol, words) == fields}
    assert MADE[protocol].lost == without_field
