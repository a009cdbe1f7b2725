"""The protocols that are spoken are those that catalogue entries may name."""

from gateway.catalogue.protocols import PROTOCOLS
from gateway.clock import Clock
from gateway.configuration.settings import load
from gateway.neutral.operations import names
from gateway.providers.registry import FACTORIES, make_protocols
from gateway.transport import Transport

# Entries may name these protocols, and are served once an implementation exists.
UNSPOKEN = {"prediction"}


def test_every_protocol_of_the_catalogue_is_spoken_but_those_named_here():
    assert set(PROTOCOLS) - set(FACTORIES) == UNSPOKEN and set(FACTORIES) <= set(PROTOCOLS)


def test_a_protocol_is_made_under_its_own_name_with_codecs_of_known_operations():
    settings = load({"GATEWAY_ENV": "test"})
    made = make_protocols(Transport(settings.timeouts, settings.security), Clock())
    assert {name: wire.name for name, wire in made.items()} == {name: name for name in FACTORIES}
    assert {name for wire in made.values() for name in wire.codecs} <= set(names())
