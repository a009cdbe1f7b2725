"""Guardrails of a realtime session: each event of the caller is checked before it is sent, each of the provider before
it is passed on."""

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import structs

from gateway.billing.context import RequestContext
from gateway.engine.guarding import LARGE_TEXT, SESSION_VALUES, Guarding
from gateway.engine.realtime.books import SessionPlace
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.guardrails.checked_texts import CheckCollector, CheckedEditor, CollectedAnswer
from gateway.guardrails.guarded_texts import AnswerStream, AnswerTexts, Findings, RequestEditor, refusal, unreadable
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import CHANGES, Place, RuleSet, refusing
from gateway.guardrails.texts import TextEditor, TextWalk
from gateway.neutral.realtime import ClientEvent
from gateway.runtime.threads import compute_if

SOUND = "audio"
PICTURES = ("input_image", "image_url")
DELTA, DONE = ".delta", ".done"
ARGUMENTS = "arguments"
MAX_OPEN = 1000  # texts in progress, and tools, that a session remembers
# Members of the provider's events without text of the answer.
NAMES = frozenset(
    ("type", "id", "event_id", "item_id", "response_id", "call_id", "object", "status", "previous_item_id")
)


class SessionGuard:
    """The guardrails of one session. Rules that change meanwhile apply from the next event on."""

    def __init__(self, guarding: Guarding, context: RequestContext, place: SessionPlace) -> None:
        self._guarding = guarding
        self._context = context
        target = place.target
        self._names = frozenset(
            (
                place.requested_model,
                target.mapping.model,
                target.provider.id,
                f"{target.provider.id}/{target.mapping.model}",
            )
        )
        self._masks: Masks | None = None
        self._streams: dict[tuple[str, str, int], tuple[AnswerStream, dict[str, Any]]] = {}
        self._tools: dict[str, str] = {}

    def request(self, event: ClientEvent) -> ClientEvent:
        """Return an event of the caller as it may be sent. ContentRefused, Unavailable."""
        rules = self._rules()
        if rules is None:
            return event
        findings = Findings()
        masks = self._known()
        editor = RequestEditor(rules, masks, findings)
        try:
            text = compute_if(_is_slow(rules, event.text), _edit_request, event, editor)
            if editor.error is not None:
                raise editor.error
            if rules.request_checks:
                text = self._check_request(rules, event, text, findings, masks)
        except RecursionError:
            raise InvalidRequest("The event is nested too deeply to be checked by the guardrails.") from None
        finally:
            self._guarding.record(self._context, findings)
        masks.keep_newest(SESSION_VALUES)
        self._guarding.keep(self._context, masks)
        return event if text is event.text else structs.replace(event, text=text)

    def answers(self, text: str) -> list[str]:
        """Return the events that the caller gets for an event of the provider. ContentRefused, Unavailable."""
        rules = self._rules()
        if rules is None or not text:
            return [text] if text else []
        if not (rules.reads_answers or rules.answer_checks or (self._masks is not None and self._masks.values)):
            return [text]
        findings = Findings()
        texts = AnswerTexts(rules, self._known(), findings, escaped=False)
        try:
            written = compute_if(_is_slow(rules, text), self._edit_answer, text, texts, rules, findings)
            if rules.answer_checks:
                self._check_answer(rules, text, texts, findings)
            return written
        except (ValueError, RecursionError):
            raise UpstreamFailed("The provider sent an event that the guardrails cannot read.") from None
        finally:
            self._guarding.record(self._context, findings)

    def _check_request(self, rules: RuleSet, event: ClientEvent, text: str, findings: Findings, masks: Masks) -> str:
        """Return the text of an event as the checkers of rules let it be sent. ContentRefused, Unavailable."""
        sent = structs.replace(event, text=text)
        collector = CheckCollector(rules.request_checks)
        large = len(text) > LARGE_TEXT
        compute_if(large, _edit_request, sent, collector)
        checked = self._guarding.checks.judge(
            self._context, rules.request_checks, rules, collector, findings, answer=False
        )
        editor = CheckedEditor(checked, masks, findings)
        edited = compute_if(large, _edit_request, sent, editor)
        blocked = checked.blocked(collector.contents)
        if editor.error is not None:
            raise editor.error
        if blocked is not None:
            findings.add(*blocked)
            raise refusal(*blocked)
        return edited

    def _check_answer(self, rules: RuleSet, text: str, texts: AnswerTexts, findings: Findings) -> None:
        """Let checkers read a whole text of the provider, before the caller gets its last event. What they find ends
        the session where a rule blocks, masks or removes it. ContentRefused, Unavailable."""
        kind, body = _read_event(text)
        if _is_sound(kind):
            refuses = refusing(rules.answer_checks, inputs=False)
            if refuses is not None:
                raise unreadable(refuses, "sound", answer=True)
            return
        if kind.endswith(DELTA):
            return
        collector = CheckCollector(rules.answer_checks)
        self._edit_whole(body, CollectedAnswer(collector, texts), True)
        checked = self._guarding.checks.judge(
            self._context, rules.answer_checks, rules, collector, findings, answer=True
        )
        for contents in collector.contents.values():
            for content in contents.values():
                for match in checked.find(content.text, "answer"):
                    findings.add(match, "answer")
                    if match.rule.acts in ("block", *CHANGES):
                        raise refusal(match, "answer")

    def _rules(self) -> RuleSet | None:
        caller = self._context.caller
        rules = self._guarding.current_rules(caller)
        return None if isinstance(rules, str) else self._guarding.rules_for(caller, rules, self._names)

    def _known(self) -> Masks:
        if self._masks is None:
            self._masks = self._guarding.masks_of(self._context.caller, self._context.session)
        return self._masks

    def _edit_answer(self, text: str, texts: AnswerTexts, rules: RuleSet, findings: Findings) -> list[str]:
        body = orjson.loads(text)
        return [orjson.dumps(event).decode() for event in self._edit(body, texts, rules, findings)]

    def _edit(
        self, body: dict[str, Any], texts: AnswerTexts, rules: RuleSet, findings: Findings
    ) -> Iterator[dict[str, Any]]:
        kind = str(body.get("type", ""))
        item = body.get("item")
        if isinstance(item, dict) and item.get("name"):
            self._tools[str(item.get("id", ""))] = str(item["name"])
            _keep_newest(self._tools)
        if _is_sound(kind):
            findings.add_unread("answer", "sound")
            refuses = rules.refusing(inputs=False)
            if refuses is not None:
                raise unreadable(refuses, "sound", answer=True)
            yield body
            return
        place = (
            kind.removesuffix(DELTA).removesuffix(DONE),
            str(body.get("item_id", "")),
            int(body.get("content_index") or 0),
        )
        if kind.endswith(DELTA) and isinstance(body.get("delta"), str):
            stream, _ = self._streams.get(place) or (self._begin(kind, body, texts), body)
            self._streams[place] = (stream, body)
            _keep_newest(self._streams)
            written = stream.feed(body["delta"])
            if written:
                yield {**body, "delta": written}
            return
        if kind.endswith(DONE) and place in self._streams:
            stream, last = self._streams.pop(place)
            rest = stream.flush()
            if rest:
                yield {**last, "delta": rest}
        yield self._edit_whole(body, texts, self._gets_values(body, texts))

    def _begin(self, kind: str, body: dict[str, Any], texts: AnswerTexts) -> AnswerStream:
        return texts.stream(escaped=ARGUMENTS in kind, restored=self._gets_values(body, texts))

    def _gets_values(self, body: dict[str, Any], texts: AnswerTexts) -> bool:
        tool = body.get("name") or self._tools.get(str(body.get("item_id", "")), "")
        return texts.gets_values(str(tool)) if tool or ARGUMENTS in str(body.get("type", "")) else True

    def _edit_whole(self, value: Any, texts: AnswerTexts, restored: bool, name: str = "") -> Any:
        if isinstance(value, str):
            if name in NAMES or name == SOUND:
                return value
            return texts.whole(value, escaped=name == ARGUMENTS, restored=restored)
        if isinstance(value, dict):
            tool = value.get("name")
            inner = restored and (not isinstance(tool, str) or texts.gets_values(tool))
            return {key: self._edit_whole(one, texts, inner, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self._edit_whole(one, texts, restored) for one in value]
        return value


def _read_event(text: str) -> tuple[str, Any]:
    """Return the type of a provider's event, and the event."""
    body = orjson.loads(text)
    return str(body.get("type", "")), body


def _edit_request(event: ClientEvent, editor: TextEditor) -> str:
    """Return the text of a caller's event as it may be sent."""
    if event.begins == "sound":
        editor.unread("sound")
        return event.text
    body = orjson.loads(event.text)
    _note_unread(body, editor)
    edited = TextWalk(editor).edit(body, _place_of(body))
    return event.text if edited is body else orjson.dumps(edited).decode()


def _is_slow(rules: RuleSet, text: str) -> bool:
    """Return whether a thread searches in a text."""
    return rules.slow or len(text) > LARGE_TEXT


def _keep_newest(entries: dict[Any, Any]) -> None:
    """Forget the oldest entry when there are too many."""
    if len(entries) > MAX_OPEN:
        del entries[next(iter(entries))]


def _is_sound(kind: str) -> bool:
    """Return whether an event of the provider is a piece of sound, and not of its transcript."""
    return kind.endswith(("audio.delta", "audio_delta"))


def _place_of(body: Any) -> Place:
    """Return the place of the texts of a caller's event."""
    if not isinstance(body, dict):
        return "prompt"
    item = body.get("item")
    if isinstance(item, dict):
        if item.get("type") == "function_call_output":
            return "tool_results"
        if item.get("type") == "function_call":
            return "tool_arguments"
        if item.get("role") in ("system", "developer"):
            return "system"
        return "history" if item.get("role") == "assistant" else "prompt"
    return (
        "system"
        if str(body.get("type", "")).startswith(("session.", "transcription_session.", "response."))
        else "prompt"
    )


def _note_unread(body: Any, editor: TextEditor) -> None:
    """Report sound and pictures within the items of an event."""
    item = body.get("item") if isinstance(body, dict) else None
    parts = item.get("content") if isinstance(item, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and (part.get(SOUND) or part.get("type") in PICTURES):
            editor.unread("media")
