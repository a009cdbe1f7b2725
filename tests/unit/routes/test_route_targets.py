"""The models that a route may name: those that serve chats."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.accounts.route_changes import check_targets
from gateway.catalogue import loader
from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest
from gateway.routes.route_document import read_document


@pytest.fixture(scope="module")
def known() -> Any:
    catalogue = loader.load(CONFIG / "catalogue", sandbox=False)
    return SimpleNamespace(catalogue=catalogue, check_requested_model=lambda *place: None)


@pytest.mark.parametrize("model", ["gpt-image-1", "openai/gpt-image-1", "text-embedding-3-small"])
def test_model_without_chat_is_refused(known: Any, model: str) -> None:
    with pytest.raises(InvalidRequest, match="serves no chat requests") as refused:
        check_targets(read_document({"otherwise": ["gpt-4o", model]}), known)
    assert refused.value.code == "route_serves_chat" and refused.value.param == "document.otherwise"


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-4o", "auto", "custom/anything", "claude-opus-5-5"])
def test_model_with_chat_is_accepted(known: Any, model: str) -> None:
    check_targets(read_document({"otherwise": model}), known)


def test_model_that_judges_must_serve_chats_and_be_no_route(known: Any) -> None:
    rules = [{"when": {"difficulty": ["large"]}, "use": "gpt-4o"}]
    for model, words in (("text-embedding-3-small", "serves no chat"), ("smart", "is a route")):
        document = read_document({"rules": rules, "otherwise": "gpt-4o", "judge": {"model": model}})
        with pytest.raises(InvalidRequest, match=words) as refused:
            check_targets(document, known)
        assert refused.value.param == "document.judge.model"
