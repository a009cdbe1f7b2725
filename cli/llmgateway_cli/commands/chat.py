"""`chat`: talk to a model at the terminal or in a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from llmgateway_cli.api_keys import require_key
from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.conversations import Answer, Conversation, read_conversation
from llmgateway_cli.errors import CliError
from llmgateway_cli.settings import GATEWAY_URL, KEY_VARIABLE
from llmgateway_cli.tables import clean
from llmgateway_cli.values import show_number, show_usd

DEFAULT_MODEL = "auto"
HELP = "/model NAME changes the model, /reset forgets the conversation, /cost shows the cost, /exit ends."


@click.command(cls=ClientCommand)
@click.argument("prompt", nargs=-1)
@click.option("-m", "--model", default="", help=f"The model (default: {DEFAULT_MODEL}).")
@click.option("--system", default="", metavar="TEXT", help="Instructions for the whole conversation.")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Continue the conversation in this file, and keep it there.",
)
@click.option("-k", "--key", default="", help=f"The API key. {KEY_VARIABLE} keeps it out of the process list.")
@click.option("--gateway-url", metavar="URL", default="", help="URL of the gateway, without /v1.")
@json_option
@pass_context
def chat(
    context: ClientContext,
    /,
    prompt: Sequence[str],
    model: str,
    system: str,
    file: Path | None,
    key: str,
    gateway_url: str,
) -> None:
    """Send PROMPT to a model, or talk to it at the terminal.

    Without PROMPT and without a terminal, standard input is the prompt; `-` stands for standard input in PROMPT. The
    answer goes to stdout, its cost to stderr.
    """
    if gateway_url:
        context.settings.flags[GATEWAY_URL] = gateway_url
    conversation = Conversation(model) if file is None else read_conversation(file, model)
    conversation.model = conversation.model or DEFAULT_MODEL
    if system:
        conversation.set_instructions(system)
    used = key or require_key(context)
    dialogue = Dialogue(context, conversation, used, file)
    text = read_prompt(prompt)
    if text is not None:
        dialogue.answer_once(text)
        return
    if context.output.as_json:
        raise CliError("A conversation at the terminal has no JSON form.", "Give the prompt as an argument.")
    dialogue.run()


def read_prompt(words: Sequence[str]) -> str | None:
    """Return the prompt of the arguments and of standard input, None to talk at the terminal. Raises CliError if it is
    empty."""
    if not words and sys.stdin.isatty():
        return None
    if not words:
        words = ["-"]
    parts = []
    for word in words:
        if word == "-":
            word = sys.stdin.read()
        parts.append(word)
    text = " ".join(parts).strip()
    if not text:
        raise CliError("The prompt is empty.", "Give it as an argument or on standard input.")
    return text


class Dialogue:
    """The turns of one conversation at the terminal."""

    def __init__(self, context: ClientContext, conversation: Conversation, key: str, file: Path | None) -> None:
        self._context = context
        self._output = context.output
        self._conversation = conversation
        self._key = key
        self._file = file

    def answer_once(self, prompt: str) -> None:
        """Print the answer to one prompt, as one JSON document if that is wanted."""
        answer = self._take_turn(prompt, shown=not self._output.as_json)
        if self._output.as_json:
            self._output.document(
                {
                    "model": answer.model,
                    "provider": answer.provider or None,
                    "answer": answer.text,
                    "finishReason": answer.finish_reason or None,
                    "usage": answer.usage,
                    "cost": answer.cost,
                    "requestId": answer.request_id or None,
                    "messages": self._conversation.messages,
                }
            )

    def run(self) -> None:
        """Answer line after line until the end of the input or /exit."""
        self._output.info(f"You are talking to {self._conversation.model}. {HELP}")
        while True:
            try:
                line = self._output.ask("you>", "the prompt")
            except click.Abort:  # Ctrl-D
                break
            if line == "/exit":
                break
            if line.startswith("/"):
                self._obey(line)
            elif line:
                self._try_turn(line)
        self._show_total()

    def _obey(self, line: str) -> None:
        command, _, argument = line.partition(" ")
        if command == "/model" and argument.strip():
            self._conversation.model = argument.strip()
            self._output.info(f"The model is now {self._conversation.model}.")
        elif command == "/reset":
            self._conversation.messages = [
                message for message in self._conversation.messages if message["role"] == "system"
            ]
            self._output.info("The conversation was forgotten.")
        elif command == "/cost":
            self._show_total()
        else:
            self._output.info(HELP)

    def _try_turn(self, prompt: str) -> None:
        """Take a turn. A failure and Ctrl-C end the turn, not the conversation."""
        try:
            self._take_turn(prompt, shown=True)
        except CliError as error:
            self._output.error(error)
        except KeyboardInterrupt:
            self._output.data("")
            self._output.info("The answer was stopped; this turn is not part of the conversation.")

    def _take_turn(self, prompt: str, shown: bool) -> Answer:
        answer = Answer()
        try:
            for text in self._conversation.ask(self._context.client, prompt, answer, self._key):
                if shown:
                    print_text(text)
        finally:
            if shown and answer.text:
                self._output.data("")
        if self._file is not None:
            self._conversation.save(self._file)
        self._output.info(cost_line(answer))
        return answer

    def _show_total(self) -> None:
        self._output.info(f"The conversation cost {show_usd(self._conversation.cost)}.")


def print_text(text: str) -> None:
    """Print a piece of an answer at once. On a terminal control characters are left out, which could change it."""
    if sys.stdout.isatty():
        text = clean(text, "\n\t")
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def cost_line(answer: Answer) -> str:
    """Return the sentence about the cost of an answer."""
    read = show_number(answer.usage.get("prompt_tokens"))
    written = show_number(answer.usage.get("completion_tokens"))
    line = f"Cost {show_usd(answer.cost)}, {read} tokens in, {written} out, {answer.model}."
    if not answer.usage:
        line = f"The service sent no cost of {answer.model or 'this answer'}."
    if answer.finish_reason not in ("", "stop"):
        line += f" The answer ended early: {answer.finish_reason}."
    return line
