"""Media operations as providers count them: read by the real codecs, billed, recorded and priced again.

A sample has the price list of a mapping, what was asked, the provider's answer by its own documentation, the disjoint
counts that it means, and what these cost: each component computed by hand and rounded by itself.
"""

import pytest
from support.billing import DOLLAR, attempt_at
from support.media_samples import CORPUS, place_of, read_answer, request_of

from gateway.billing.rerating import rerate
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model
from gateway.catalogue.prices import COMPONENTS
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.limits.cost_bound import CostBound
from gateway.neutral.usage import Usage
from gateway.providers.protocol import WireFormat
from gateway.providers.registry import make_protocols
from gateway.transport import Transport

AT = 1_750_000_000_000_000


@pytest.fixture(scope="module")
def wires() -> dict[str, WireFormat]:
    return make_protocols(Transport(Timeouts(1, 1, 1, 1, 1, 1), Security(False, (), ())), Clock())


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60


def test_the_books_have_each_payload_as_it_was_computed_by_hand(start_billing, account, wires) -> None:
    process = start_billing()
    process.ledger.grant(account.organization, 100 * DOLLAR, "start")
    expected, mappings = {}, []
    for number, sample in enumerate(CORPUS):
        target, request = place_of(sample, number), request_of(sample)
        settlement = process.admit(account, CostBound(DOLLAR, 0, 0, True), units=request.requirements.units)
        settlement.begin(0, target)
        attempt = attempt_at(target)
        read_answer(wires[sample["protocol"]], sample, request, attempt)
        settlement.settle(attempt)
        settlement.close()
        assert attempt.usage == Usage(**sample["usage"]), sample["name"]
        charged = {name: nusd for name in COMPONENTS if (nusd := getattr(attempt.charge, name))}
        assert (charged, attempt.charge.total) == (sample["parts"], sample["total"]), sample["name"]
        expected[target.mapping.key] = sample["total"]
        mappings.append(target.mapping)
    process.rest()
    report = rerate(process.database, Catalogue([Model("m", mappings=tuple(mappings))], [], {}, "v1"), AT, AT + 1)
    assert report.left == {}
    assert {place.mapping: line.recorded_nusd for place, line in report.lines.items()} == expected
    assert {place.mapping: line.rated_nusd for place, line in report.lines.items()} == expected
    assert process.ledger.balance(account.organization).balance_nusd == 100 * DOLLAR - sum(expected.values())
