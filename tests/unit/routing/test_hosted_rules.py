"""Routing, reservations and usage rows must agree about the hosted tools that a call of a target has."""

from gateway.catalogue import loader
from gateway.catalogue.entries import uses_at
from gateway.clock import Clock
from gateway.configuration.settings import load
from gateway.dialects import anthropic, google, openai, responses_vocabulary
from gateway.neutral.hosted_uses import HostedUse
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import make_protocols
from gateway.routing.candidates import Tables
from gateway.routing.hosted_rules import applies
from gateway.transport import Transport

VENDORS = (anthropic.NAME, google.NAME, openai.NAME, responses_vocabulary.NAME)


def test_a_call_has_the_same_tools_in_routing_as_in_its_row() -> None:
    settings = load({"GATEWAY_ENV": "test"})
    protocols = make_protocols(Transport(settings.timeouts, settings.security), Clock())
    catalogue = loader.load()
    tables = Tables(lambda: catalogue, Clock(), {name: wire.dialect for name, wire in protocols.items()})
    differences = set()
    for name in catalogue.models:
        for candidate in tables.of_models((name,)):
            target = Target(candidate.provider, candidate.mapping, Credential(""), "")
            for vendor in VENDORS:
                use = HostedUse(vendor, "tool", "unknown")
                if applies(use, candidate) != bool(uses_at(target.protocol, target.second, (use,))):
                    differences.add((target.protocol, target.second, vendor))
    assert differences == set()
