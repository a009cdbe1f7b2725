"""Several prompts in one text completion: each is a separate request, and their answers are the choices of one
response."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import structs

from gateway import ids
from gateway.billing.context import RequestContext
from gateway.engine.executor import Answer, StreamedAnswer
from gateway.errors import ATTEMPTS, GatewayError
from gateway.money import NANO, format_usd
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import Job, compute_if
from gateway.surfaces.facts import Facts, Header, headers_of
from gateway.surfaces.openai import completions_writer
from gateway.surfaces.openai.chat_writer import error_frame
from gateway.surfaces.openai.completions_writer import (
    CompletionChoice,
    CompletionMetadata,
    CompletionTail,
    TextCompletion,
)
from gateway.worker.services import Services

TOGETHER = 4  # prompts that run at the same time
COST = "x-llmgateway-cost"


class PromptBatch:
    """The requests of one call, in the order of its prompts; `echoed` and `unfence` as for the writer. The first runs
    as the call itself; each of the others has its own context, reservation and usage row."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        requests: list[ChatRequest],
        echoed: list[str],
        unfence: bool,
        prefix: str,
    ) -> None:
        others = [_new_context(context) for _ in requests[1:]]
        self._services = services
        self._requests = requests
        self._unfence = unfence
        self._contexts = [context, *others]
        self._id = prefix + context.request_id
        self.shown_id = context.shown_id
        needs = requests[0].requirements
        self._choices = needs.n
        self.streamed = needs.stream
        self._large = requests[0].large
        self._echoes = [completions_writer.Echo(text, needs.n) for text in echoed]

    def generate(self) -> tuple[bytes, list[Header]]:
        """Return the body of the complete response, and its headers. An error of one prompt fails the call; completed
        prompts are billed."""
        answers = [self._generate(0)]
        # This prompt is paid whatever happens to the others, so a retry with the same Idempotency-Key does not repeat
        # the call.
        self._services.billing.settlements.call_counts.mark_billed(bytes.fromhex(self._contexts[0].request_id))
        headers = dict(headers_of(self._facts(0, answers[0]), self._services.clock, streamed=False))
        for start in range(1, len(self._requests), TOGETHER):
            answers += self._generate_together(range(start, min(start + TOGETHER, len(self._requests))))
        facts = [self._facts(number, answer) for number, answer in enumerate(answers)]
        headers[COST] = format_usd(sum(fact.charge.total for fact in facts))
        headers[ATTEMPTS] = str(sum(len(fact.outcome.attempts) for fact in facts))
        return compute_if(self._large, self._write, answers, facts), list(headers.items())

    def stream(self) -> tuple[Iterator[bytes], list[Header]]:
        """Return server-sent events, one prompt after the other, then the usage of all; and the headers. Errors of the
        first prompt before any content are raised, later ones end the stream."""
        first = self._services.engine.chat.stream(self._contexts[0], self._requests[0])
        frames = self._frames(first)
        next(frames)  # taken now: from here on, closing this generator also closes the stream
        return frames, headers_of(self._facts(0, first), self._services.clock, streamed=True)

    def _frames(self, first: StreamedAnswer) -> Iterator[bytes]:
        tails: list[CompletionTail] = []
        stream = first
        try:
            yield b""
            for number, context in enumerate(self._contexts):
                if number:
                    stream = self._services.engine.chat.stream(context, self._requests[number])
                facts = self._facts(number, stream)
                part = completions_writer.PromptStream(
                    facts, self._echoes[number], self._unfence, number * self._choices
                )
                yield from part.frames(stream)
                if part.tail is None:
                    return
                tails.append(part.tail)
            yield completions_writer.last_frame(facts, self._merge_tails(tails))
        except GatewayError as error:
            yield error_frame(error)
        finally:
            stream.close()

    def _write(self, answers: list[Answer], facts: list[Facts]) -> bytes:
        bodies = [
            completions_writer.body_of(answer.result, fact, echo, unfence=self._unfence)
            for answer, fact, echo in zip(answers, facts, self._echoes, strict=True)
        ]
        return orjson.dumps(self._merge(bodies))

    def _generate(self, number: int) -> Answer:
        return self._services.engine.chat.generate(self._contexts[number], self._requests[number])

    def _generate_together(self, numbers: range) -> list[Answer]:
        jobs = [Job(self._generate, number) for number in numbers]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            # A prompt failed or the caller disconnected: the other results are not needed.
            for job in jobs:
                job.stop()
            raise

    def _facts(self, number: int, answer: Answer | StreamedAnswer) -> Facts:
        return Facts(self._contexts[number], answer.outcome, self._id)

    def _merge(self, bodies: list[TextCompletion]) -> TextCompletion:
        choices: list[CompletionChoice] = []
        for number, body in enumerate(bodies):
            for choice in body["choices"]:
                choices.append({**choice, "index": number * self._choices + choice["index"]})
        return {**bodies[0], "choices": choices, **self._merge_tails(bodies)}

    def _merge_tails(self, tails: Sequence[CompletionTail]) -> CompletionTail:
        """Return usage and cost of all prompts, the routing of the first, and the log id of each."""
        warnings = dict.fromkeys(text for tail in tails for text in tail["metadata"].get("warnings", ()))
        log_ids = [context.request_id for context in self._contexts]
        metadata: CompletionMetadata = {**tails[0]["metadata"], "log_ids": log_ids}
        if warnings:
            metadata["warnings"] = list(warnings)
        return {"usage": _sum([tail["usage"] for tail in tails]), "metadata": metadata}


def _new_context(context: RequestContext) -> RequestContext:
    """Return the context of another prompt: its payload is retained with that of the first, which holds the whole
    call."""
    return structs.replace(context, request_id=ids.new_hex(), payload=None, request=None, outcome=None)


def _sum(usages: Sequence[Mapping[str, Any]]) -> Any:
    """Add usage objects member by member; costs are added as whole nano-dollars."""
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for usage in usages for name in usage):
        values = [usage[name] for usage in usages if usage.get(name) is not None]
        if values and isinstance(values[0], dict):
            total[name] = _sum(values)
        elif values and isinstance(values[0], float):
            total[name] = sum(round(value * NANO) for value in values) / NANO
        else:
            total[name] = sum(values) if values else None
    return total
