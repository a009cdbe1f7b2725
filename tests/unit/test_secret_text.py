"""Secrets in text: every token that the gateway issues, and passwords in addresses."""

import time

import pytest

from gateway import ids
from gateway.secret_text import TOKEN_PREFIXES, hide_secrets, hide_tokens, mask_address


@pytest.mark.parametrize("prefix", TOKEN_PREFIXES)
@pytest.mark.parametrize("around", ["{}", "There is no model '{}'.", "a/{}/b", 'x="{}"', "job-{}", "{}{}"])
def test_a_token_is_hidden_and_its_kind_is_not(prefix: str, around: str) -> None:
    token = ids.token(prefix)
    text = hide_tokens(around.replace("{}", token))
    assert token[len(prefix) : len(prefix) + 6] not in text and f"{prefix}[hidden]" in text


@pytest.mark.parametrize("cut", range(14, 48))
def test_the_beginning_of_a_token_is_hidden(cut: int) -> None:
    assert hide_tokens(("llmgtwy_" + "a1B-" * 10)[:cut]) == "llmgtwy_[hidden]"


@pytest.mark.parametrize(
    "text", ["llmgateway_requests_total", "seek_and_find", "llmgtwy_AbCd•••••", "week_of_the_year"]
)
def test_other_words_stay(text: str) -> None:
    assert hide_tokens(text) == text and hide_secrets(text) == text


def test_a_token_with_an_unknown_prefix_is_not_made() -> None:
    with pytest.raises(ValueError, match="TOKEN_PREFIXES"):
        ids.token("llmgnew_")


@pytest.mark.parametrize(
    "piece", ["llmgtwy_", "ek_", "a://b:c@", "://", "llmg", "?key=&", "@:", "ek%5", "://a:/@?token="]
)
def test_hiding_is_linear_in_the_text(piece: str) -> None:
    def measure(count: int) -> float:
        text = piece * count
        best = 60.0
        for _ in range(3):
            began = time.process_time()
            hide_secrets(text)
            mask_address(text)
            best = min(best, time.process_time() - began)
        return best

    assert measure(40_000) < 4 * measure(20_000) + 0.02
