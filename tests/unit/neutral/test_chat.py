"""Copies of a request keep its unchanged fields."""

from types import SimpleNamespace

from gateway.engine.fitting import Fitting
from gateway.neutral.cache_marks import apply_policy
from gateway.neutral.chat import ChatRequest, Completion, Conversation, Requirements, WebSearch
from gateway.neutral.parts import Message, Text
from gateway.providers.upstream import without_offers
from gateway.routing.capabilities import OFFERED_SEARCH

TALK = Conversation((Message("user", (Text("Hello?"),)),), tools=(WebSearch(),))
NEEDS = Requirements(web_search=True, search_offered=True, messages=3)
ROOMLESS = SimpleNamespace(ability=None, key="acme/m", mapping=SimpleNamespace(reasoning_efforts=()))
KEPT = ("requested_model", "user", "large", "completion")


def test_a_changed_copy_of_a_request_keeps_all_other_fields():
    request = ChatRequest("m", NEEDS, lambda: TALK, user="u", large=True, completion=Completion("p"), warnings=("own",))
    fitting = Fitting(ROOMLESS, (OFFERED_SEARCH,), "")
    others = [
        apply_policy(request, "automatic"),
        without_offers(request, "acme/m"),
        fitting.fit(request),
    ]
    for other in others:
        assert other is not request
        assert [getattr(other, name) for name in KEPT] == [getattr(request, name) for name in KEPT]
        assert other.warnings[0] == "own"
    assert [bool(one.conversation().tools) for one in others] == [True, False, False]
