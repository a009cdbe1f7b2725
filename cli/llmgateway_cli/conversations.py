"""A conversation with a model: its messages, what its answers cost, and the file that keeps it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import replace_file

if TYPE_CHECKING:
    from llmgateway_cli.http_client import ApiClient

COMPLETIONS = "/v1/chat/completions"


@dataclass(slots=True)
class Answer:
    """The answer of one turn, filled while it arrives. `cost` is in dollars, None if the service sends none."""

    text: str = ""
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    provider: str = ""
    request_id: str = ""

    @property
    def cost(self) -> float | None:
        cost = self.usage.get("cost")
        return float(cost) if isinstance(cost, int | float) else None

    def read(self, chunk: dict[str, Any]) -> str:
        """Take over one chunk of a streamed answer and return its text."""
        self.usage = chunk.get("usage") or self.usage
        self.model = chunk.get("model") or self.model
        metadata = chunk.get("metadata") or {}
        self.provider = metadata.get("used_provider") or self.provider
        self.request_id = metadata.get("request_id") or self.request_id
        for choice in chunk.get("choices") or []:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            text = (choice.get("delta") or {}).get("content") or ""
            self.text += text
            return text
        return ""


@dataclass(slots=True)
class Conversation:
    """The messages of a conversation, with the model that continues it; `cost` is the sum of its answers."""

    model: str
    messages: list[dict[str, str]] = field(default_factory=list)
    cost: float = 0.0

    def set_instructions(self, text: str) -> None:
        """Set the system message, which comes first."""
        others = [message for message in self.messages if message["role"] != "system"]
        self.messages = [{"role": "system", "content": text}, *others]

    def ask(self, client: "ApiClient", prompt: str, answer: Answer, key: str | None) -> Iterator[str]:
        """Send a prompt and yield the text of the answer as it arrives. The turn is part of the conversation when the
        answer is complete."""
        turn = {"role": "user", "content": prompt}
        body = {
            "model": self.model,
            "messages": [*self.messages, turn],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for chunk in client.gateway_stream(COMPLETIONS, body, key=key):
            text = answer.read(chunk)
            if text:
                yield text
        self.messages += [turn, {"role": "assistant", "content": answer.text}]
        self.cost += answer.cost or 0.0

    def save(self, path: Path) -> None:
        """Write the conversation to a file that only the user may read."""
        document = {"model": self.model, "cost": self.cost, "messages": self.messages}
        replace_file(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def read_conversation(path: Path, model: str) -> Conversation:
    """Return the conversation of a file, an empty one without a file; `model` replaces the model of the file. Raises
    CliError if the file is damaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        messages = [
            {"role": str(message["role"]), "content": str(message["content"])} for message in document["messages"]
        ]
        return Conversation(model or str(document["model"]), messages, float(document["cost"]))
    except FileNotFoundError:
        return Conversation(model)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(
            f"The conversation {path} cannot be read ({type(error).__name__}).", "Name another file with --file."
        ) from None
