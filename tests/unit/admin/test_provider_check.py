"""The question of a test call with a provider key: one that the model answers, the cheapest kind first."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admin.provider_check import QUESTIONS, ProviderCheck
from gateway.callers.stored_keys import ProviderKeyInfo, StoredCredential
from gateway.catalogue import loader
from gateway.clock import Clock
from gateway.neutral.request import Request
from gateway.providers.sandbox.decisions import check_decisions

CATALOGUE = loader.load()
KEY = StoredCredential(ProviderKeyInfo("pkey_1", "org_1", "sandbox", "sk-…"), "sk-secret")


class Upstreams:
    """Answers every request, and keeps the last one."""

    request: Request

    def send(self, request: Request, target: Any, deadline: float) -> None:
        self.request = request

    def stream(self, request: Request, target: Any, deadline: float) -> SimpleNamespace:
        self.request = request
        return SimpleNamespace(batches=(), close=lambda: None)


@pytest.mark.parametrize(
    ("model", "operation"),
    [
        ("sandbox-echo", "chat"),
        ("sandbox-embed", "embeddings"),
        ("sandbox-moderate", "moderations"),
        ("sandbox-rerank", "rerank"),
        ("sandbox-decide", "decisions"),
        ("sandbox-speak", "speech"),
        ("sandbox-image", "images"),
        ("", "chat"),
    ],
)
def test_a_model_is_asked_a_question_that_it_answers(model: str, operation: str) -> None:
    upstreams: Any = Upstreams()
    keys: Any = SimpleNamespace(find=lambda organization_id, key_id: KEY)
    credentials: Any = SimpleNamespace(target=lambda mapping, provider, credential: mapping)
    no_custom_models: Any = None
    check = ProviderCheck(lambda: CATALOGUE, credentials, keys, no_custom_models, no_custom_models, upstreams, Clock())
    assert check.check("org_1", "pkey_1", model).ok
    assert upstreams.request.operation == operation and "ping" in str(upstreams.request.content())


def test_the_question_to_a_decision_model_is_complete() -> None:
    question: Any = QUESTIONS["decisions"]("sandbox-decide")
    check_decisions(question.content() | {"model": "sandbox-decide"})
