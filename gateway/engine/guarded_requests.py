"""A request under guardrails, and its answer, whole or streamed."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from gateway.billing.context import RequestContext
from gateway.engine.content_checks import ContentChecks
from gateway.errors import ContentRefused, GatewayError, Unavailable
from gateway.guardrails.checked_texts import (
    CheckCollector,
    CheckedAnswer,
    CheckedEditor,
    CheckedWindow,
    CollectedAnswer,
    LateCheck,
)
from gateway.guardrails.guarded_texts import (
    AnswerStream,
    AnswerTexts,
    Findings,
    RequestEditor,
    edit_answer,
    refusal,
    unreadable,
)
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, Match, RuleSet, refusing
from gateway.guardrails.texts import TextWalk
from gateway.guardrails.windows import Replace, Stage
from gateway.neutral.chat import ChatRequest, ChatResult, Choice, FinishReason
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    ImageMade,
    MediaPiece,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Part, Refusal, ToolCall
from gateway.neutral.request import Request
from gateway.runtime.threads import compute_if

R = TypeVar("R", bound=Request)
V = TypeVar("V")

OPTIONS = ("extra", "image_config", "prompt_cache_key", "service_tier")  # that are sent to providers
# Operations without text in their whole answers: vectors, scores, and the id of a job.
NUMBERS_ONLY = frozenset(("embeddings", "rerank", "videos"))
PLAIN_EVENTS = (Started, Notice, Heartbeat, Progress)
BLOCK_FINISH: FinishReason = "content_filter"


class GuardedRequest:
    """The rules in force for one request, what they found in it, and the values that its answer gets back."""

    def __init__(
        self,
        context: RequestContext,
        rules: RuleSet,
        request: Request,
        masks: Masks,
        checks: ContentChecks,
        record: Callable[[RequestContext, Findings], None],
    ) -> None:
        self._context = context
        self.rules = rules
        self.findings = Findings()
        self.masks = masks
        self._checks = checks
        self._record = record
        needs = request.requirements
        self._escaped = needs.json_object or needs.json_schema
        self._texts = AnswerTexts(rules, masks, self.findings, self._escaped)
        self.is_chat = isinstance(request, ChatRequest)
        self._operation = request.operation
        self._recorded = False
        self.blocked: GatewayError | None = None

    def protect(self, request: R, large: bool) -> R:
        """Return the request with its texts edited. It is rebuilt for its provider rather than relayed, so that a
        provider gets nothing that was not read here. ContentRefused, Unavailable."""
        request = compute_if(large, self._edit, request, RequestEditor(self.rules, self.masks, self.findings))
        rules = self.rules.request_checks
        if not rules or (self._context.job is not None and not self._context.job.asks_checkers):
            return request
        return self._check(request, rules, large)

    def _check(self, request: R, rules: Sequence[GuardrailRule], large: bool) -> R:
        """Return the request, edited by the findings of checkers."""
        collector = CheckCollector(rules)
        compute_if(large, _edit_texts, request, collector)
        checked = self._checks.judge(self._context, rules, self.rules, collector, self.findings, answer=False)
        edited = compute_if(large, self._edit, request, CheckedEditor(checked, self.masks, self.findings))
        blocked = checked.blocked(collector.contents)
        if blocked is not None:  # within JSON that was edited otherwise
            self.findings.add(*blocked)
            raise refusal(*blocked)
        return edited

    def _edit(self, request: R, editor: RequestEditor) -> R:
        content = request.content()
        changes = _edit_texts(request, editor)
        edited = changes.pop("content")
        if request.requirements.media and not editor.files and not self.findings.unread:
            editor.unread("media")
        if editor.error is not None:
            raise editor.error
        needs = request.requirements
        if editor.growth:
            grown = {"longest_input": needs.longest_input + editor.growth} if needs.longest_input else {}
            changes["requirements"] = structs.replace(needs, prompt_bytes=needs.prompt_bytes + editor.growth, **grown)
        warnings = [text for text in self.findings.warnings(answer=False) if text not in request.warnings]
        changes |= {"native": None, "warnings": (*request.warnings, *warnings)}
        if edited is not content:
            changes["decode"] = lambda: edited
            changes["_decoded"] = edited
            if isinstance(request, ChatRequest):
                changes["inlined"] = None
        return structs.replace(request, **changes)

    def answer(self, result: Any) -> Any:
        """Return a whole answer with its texts checked and its values restored. Raises ContentRefused if a rule blocks
        it and its operation has no form for a refusal."""
        try:
            if isinstance(result, ChatResult) or self._operation not in NUMBERS_ONLY:
                result = self._edit_answer(result)
        finally:
            self.record()
        warnings = self.findings.warnings(answer=True)
        if warnings:
            result.warnings = (*result.warnings, *warnings)
            if self._context.outcome is not None:
                self._context.outcome.warnings.extend(warnings)
        return result

    def _edit_answer(self, result: Any) -> Any:
        try:
            return self._apply(_edit_result, result, self.rules.slow or result.large)
        except ContentRefused as error:
            if not isinstance(result, ChatResult):
                raise
            refused = Choice(_refusal_parts(error), BLOCK_FINISH)
            result.choices = tuple(refused for _ in result.choices)
            return result

    def _apply(self, edit: Callable[[V, AnswerTexts], V], value: V, large: bool) -> V:
        """Return a whole value of the answer under all rules. A checker reads it as the other rules leave it, with
        placeholders."""
        rules = self.rules.answer_checks
        if not rules:
            return compute_if(large, edit, value, self._texts)
        masked = AnswerTexts(self.rules, self.masks, self.findings, self._escaped, restores=False)
        value = compute_if(large, edit, value, masked)
        collector = CheckCollector(rules)
        compute_if(large, edit, value, CollectedAnswer(collector, self._texts))
        checked = self._checks.judge(self._context, rules, self.rules, collector, self.findings, answer=True)
        texts = CheckedAnswer(checked, self.masks, self.findings, self._escaped)
        return compute_if(large, edit, value, texts)

    def stream(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """Yield the batches of an answer with their texts checked and their values restored."""
        rules = self.rules.answer_checks
        texts = self._texts
        if rules:
            checks = [
                partial(make, [rule for rule in rules if rule.checker and rule.checker.streaming == name])
                for name, make in (("window", self._make_window), ("end", self._make_late_check))
                if any(rule.checker and rule.checker.streaming == name for rule in rules)
            ]
            texts = AnswerTexts(self.rules, self.masks, self.findings, self._escaped, checks=checks)
        return GuardedStream(self, texts, batches).run()

    def _make_window(self, rules: Sequence[GuardrailRule], replace: Replace) -> Stage:
        return CheckedWindow(partial(self._check_text, rules, False), replace)

    def _make_late_check(self, rules: Sequence[GuardrailRule], replace: Replace) -> Stage:
        return LateCheck(partial(self._check_text, rules, True), self.findings)

    def _check_text(self, rules: Sequence[GuardrailRule], late: bool, text: str) -> list[Match]:
        """Return the findings of the checkers in a text of a stream. `late`: nothing can be blocked any more."""
        collector = CheckCollector(rules)
        collector.text(text, "answer")
        checked = self._checks.judge(
            self._context, rules, self.rules, collector, self.findings, answer=True, remembered=False, late=late
        )
        return checked.find(text, "answer")

    def record(self) -> None:
        """Store the findings, once."""
        if not self._recorded:
            self._recorded = True
            self._record(self._context, self.findings)

    def usage(self) -> Any:
        """Return the usage of the answer so far, None where it is not known yet."""
        outcome = self._context.outcome
        return outcome.serving.usage if outcome is not None and outcome.attempts else None

    def note_unread(self, kind: str) -> None:
        """Note that content of the answer was not read. ContentRefused where a rule refuses that."""
        self.findings.add_unread("answer", kind)
        rule = refusing(self.rules.rules, inputs=False)
        if rule is not None:
            raise unreadable(rule, kind, answer=True)

    def edit_part(self, value: Any) -> Any:
        """Return a part of a streamed answer with its texts edited. ContentRefused, Unavailable."""
        return self._apply(edit_answer, value, False)


def _edit_texts(request: Request, editor: Any) -> dict[str, Any]:
    """Return the edited members of a request, its input as `content`."""
    walk = TextWalk(editor)
    skipped = frozenset(type(request.options).__struct_fields__) - frozenset(OPTIONS)
    changes: dict[str, Any] = {
        "content": walk.edit(request.content(), "prompt"),
        "user": walk.edit(request.user, "prompt"),
        "options": walk.edit_fields(request.options, "prompt", skipped),
    }
    if isinstance(request, ChatRequest):
        changes["completion"] = walk.edit(request.completion, "prompt")
    return changes


def _edit_result(result: Any, texts: AnswerTexts) -> Any:
    """Return a whole answer with its texts edited. ContentRefused."""
    if not isinstance(result, ChatResult):
        return edit_answer(result, texts)
    result.choices = tuple(
        structs.replace(choice, parts=tuple(_edit_part(part, texts) for part in choice.parts))
        for choice in result.choices
    )
    return result


def _edit_part(part: Part, texts: AnswerTexts) -> Part:
    if not isinstance(part, ToolCall):
        edited: Part = edit_answer(part, texts)
        return edited
    arguments = texts.whole(part.arguments, not part.custom, texts.gets_values(part.name))
    return structs.replace(part, name=texts.whole(part.name, restored=False), arguments=arguments)


class GuardedStream:
    """A streamed answer: one window for each text in it."""

    def __init__(self, guard: GuardedRequest, texts: AnswerTexts, batches: Generator[Batch, None, None]) -> None:
        self._guard = guard
        self._texts = texts
        self._batches = batches
        self._open: dict[tuple[int, int], tuple[AnswerStream, Any]] = {}
        self._last_blocks = {0: -1}  # by choice

    def run(self) -> Generator[Batch, None, None]:
        """Yield the edited batches; a blocked value ends the answer with a refusal."""
        try:
            for batch in self._batches:
                sent: Batch = []
                try:
                    for event in batch:
                        self._take(event, sent)
                except ContentRefused as error:
                    self._guard.blocked = error
                    self._batches.close()
                    yield [*sent, *self._refuse(error)]
                    return
                except Unavailable as error:  # of a checker that a rule waits for
                    self._guard.blocked = error
                    self._batches.close()
                    yield [*sent, Failed(error, self._guard.usage())]
                    return
                if sent:
                    yield sent
                elif batch:
                    yield [Heartbeat()]
        finally:
            self._batches.close()
            self._guard.record()

    def _take(self, event: Event, sent: Batch) -> None:
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta | ToolCallDelta):
            self._take_delta(event, sent)
        elif isinstance(event, Finished):
            self._flush_all(sent)
            sent += [Notice(text) for text in self._guard.findings.warnings(answer=True)]
            sent.append(event)
        elif isinstance(event, Failed):
            sent.append(event)
        elif isinstance(event, BlockDone):
            self._flush((event.choice, event.block), sent)
            sent.append(event)
        elif isinstance(event, PLAIN_EVENTS):
            sent.append(event)
        else:
            self._take_whole(event, sent)

    def _take_delta(self, event: Any, sent: Batch) -> None:
        self._last_blocks[event.choice] = max(self._last_blocks.get(event.choice, -1), event.block)
        place = (event.choice, event.block)
        if place not in self._open:
            if isinstance(event, ToolCallDelta) and event.name:
                event = structs.replace(event, name=self._texts.whole(event.name, restored=False))
            self._flush_all(sent, event.choice)
            self._open[place] = (self._begin(event), event)
        text, _ = self._open[place]
        field = "arguments" if isinstance(event, ToolCallDelta) else "text"
        given = getattr(event, field)
        written = text.feed(given)
        if written == given:
            sent.append(event)
        elif written or _has_more(event, field):
            sent.append(structs.replace(event, **{field: written}))

    def _begin(self, event: Any) -> AnswerStream:
        if isinstance(event, ToolCallDelta):
            return self._texts.stream(not event.custom, self._texts.gets_values(event.name))
        return self._texts.stream()

    def _flush(self, place: tuple[int, int], sent: Batch) -> None:
        known = self._open.get(place)
        if known is None:
            return
        text, first = known
        rest = text.flush()
        if rest:
            sent.append(_piece_of(first, rest))

    def _flush_all(self, sent: Batch, choice: int | None = None) -> None:
        """Send the rest of all texts. Before another block of a `choice` begins, of its texts only: the arguments of
        several tool calls may come in turns."""
        for place, (_, first) in self._open.items():
            if choice is None or (place[0] == choice and not isinstance(first, ToolCallDelta)):
                self._flush(place, sent)

    def _take_whole(self, event: Any, sent: Batch) -> None:
        """Take an event that has a whole part, or content that cannot be read."""
        if isinstance(event, SourceFound):
            sent.append(structs.replace(event, source=self._guard.edit_part(event.source)))
        elif isinstance(event, PartFound):
            sent.append(structs.replace(event, part=self._guard.edit_part(event.part)))
        elif isinstance(event, MediaPiece | ImageMade):
            self._guard.note_unread("media")
            self._flush_all(sent, event.choice)
            sent.append(event)
        else:
            raise TypeError(f"an event {type(event).__name__} passed the guardrails unread")

    def _refuse(self, error: ContentRefused) -> Batch:
        if not self._guard.is_chat:
            return [Failed(error, self._guard.usage())]
        refusals = [RefusalDelta(error.message, block + 1, choice) for choice, block in self._last_blocks.items()]
        return [*refusals, Finished(BLOCK_FINISH, self._guard.usage())]


def _piece_of(first: Any, text: str) -> Event:
    """Return a further delta of the block of `first` with this text."""
    if isinstance(first, ToolCallDelta):
        return ToolCallDelta(first.block, text, custom=first.custom, choice=first.choice)
    if isinstance(first, RefusalDelta):
        return RefusalDelta(text, first.block, first.choice)
    if isinstance(first, ReasoningDelta):
        return ReasoningDelta(text, vendor=first.vendor, summary=first.summary, block=first.block, choice=first.choice)
    return TextDelta(text, first.block, first.choice)


def _has_more(event: Any, field: str) -> bool:
    """Return whether an event has more than its text."""
    return any(
        getattr(event, name)
        for name in type(event).__struct_fields__
        if name not in (field, "block", "choice", "summary")
    )


def _refusal_parts(error: GatewayError) -> tuple[Part, ...]:
    return (Refusal(error.message),)
