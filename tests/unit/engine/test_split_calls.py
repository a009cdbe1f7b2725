"""One request in several calls: what the good ones used is paid when another one fails."""

import dataclasses

import gevent
import pytest
from support.engine_runs import Providers, target_at

from gateway.engine import split_calls, streaming
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult
from gateway.neutral.request import Requirements
from gateway.neutral.usage import Usage


def test_each_of_several_calls_counts_the_media_of_the_prompt():
    """A caller who left two answers about a PDF paid for its text alone."""
    where = target_at("north")
    needs = Requirements(prompt_bytes=400, media=1, media_tokens=9_000, likely_media_tokens=3_000, n=2)
    request = ChatRequest("m", needs, lambda: Conversation(()))
    assert split_calls.estimated_part(request, None, where, 40).input == 3_100
    part = streaming._Part(request, 0, where)
    part.reported = lambda: Usage(input=5_000, output=700)
    assert part.used() == Usage(input=5_000, output=700)


def test_calls_that_ended_well_behind_one_that_failed_are_paid_too():
    where = target_at("north")
    where = dataclasses.replace(where, mapping=dataclasses.replace(where.mapping, max_inputs=1))
    started: list[int] = []

    def answer() -> EmbeddingsResult:
        started.append(1)
        if len(started) == 2:
            gevent.sleep(0.02)
            raise UpstreamFailed("The second one fails.")
        return EmbeddingsResult([[0.5]], usage=Usage(input=7))

    needs = Requirements(prompt_bytes=20, messages=4)
    request = EmbeddingsRequest("m", needs, lambda: EmbeddingsInput(("one", "two", "three", "four")))
    with pytest.raises(UpstreamFailed) as failed:
        split_calls.send(Providers(north=answer), request, where, 1e9, None)
    assert failed.value.spent == Usage(input=21)
