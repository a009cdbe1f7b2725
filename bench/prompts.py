"""The CPU of an agent's request of 200 KB against that of a small one, for each dialect and provider: `python -m
bench.prompts`.

Each dialect is sent to the vendor that has it, where the body is relayed, and to another, where it is translated.
Answers come from a small server of this module, so that only the gateway's own CPU differs.
"""

import argparse
import json
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import lanes
from bench.agent_bodies import DIALECTS
from bench.lanes import CLAUDE, GEMINI, GPT, TEXT, Lane
from bench.processes import BenchError
from bench.run import WARM_UP_S, Write, build
from bench.targets import KEY
from bench.upstreams import serve

ITEM = {
    "type": "message", "id": "msg_lane", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_lane", "object": "response", "created_at": 1_700_000_000, "status": "completed", "model": "gpt-4o-mini",
    "output": [ITEM], "usage": {"input_tokens": 19, "output_tokens": 32, "total_tokens": 51},
}  # fmt: skip
ANSWERS = lanes.ANSWERS | {b"/responses": RESPONSE}
AIM = 1.5


@dataclass(frozen=True, slots=True)
class Prompt:
    """A dialect and the model that answers it; `relayed` if the model's vendor has that dialect."""

    dialect: str
    model: str
    relayed: bool = False

    @property
    def name(self) -> str:
        return f"{self.dialect} to {self.model.partition('/')[0]}"

    def lane(self, large: bool) -> Lane:
        return Lane(f"{self.name}, {'large' if large else 'small'}", self.model, write=write_of(self.dialect, large))


PROMPTS = (
    Prompt("chat", GPT, relayed=True),
    Prompt("chat", CLAUDE),
    Prompt("messages", CLAUDE, relayed=True),
    Prompt("messages", GPT),
    Prompt("responses", GPT, relayed=True),
    Prompt("responses", CLAUDE),
    Prompt("gemini", GEMINI, relayed=True),
    Prompt("gemini", CLAUDE),
)


def write_of(dialect: str, large: bool) -> Write:
    """Return the function that writes the requests of a dialect."""
    path, make, small = DIALECTS[dialect]
    content = make() if large else small

    def write(port: int, prompt: str, stream: bool, model: str) -> bytes:
        body = json.dumps(content if "{model}" in path else {"model": model, **content}, ensure_ascii=False).encode()
        head = (
            f"POST {path.replace('{model}', model)} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {KEY}\r\n"
            f"user-agent: bench\r\naccept: application/json\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    return write


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every request was answered; 1 with a reason when the run means nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.prompts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which the requests take turns (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement (2)")
    parser.add_argument("--port", type=int, default=19_560, help="first of the two ports to use (19560)")
    parser.add_argument("--only", help="only requests with this in their name, such as `chat to openai`")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, answer)
        return 0
    try:
        print(write_table(measure(options)))
    except BenchError as error:
        print(f"prompts: {error}", file=sys.stderr)
        return 1
    return 0


def answer(connection: socket.socket) -> None:
    lanes.answer(connection, ANSWERS)


def measure(options: argparse.Namespace) -> dict[Prompt, list[tuple[float, float]]]:
    """Return the CPU µs of the small and of the large request in each round. Raises BenchError."""
    build()
    chosen = [prompt for prompt in PROMPTS if not options.only or options.only in prompt.name]
    figures: dict[Prompt, list[tuple[float, float]]] = {prompt: [] for prompt in chosen}
    with tempfile.TemporaryDirectory(prefix="prompts-") as name:
        folder = Path(name)
        with lanes.start(options.port, folder, module="bench.prompts") as gateway:
            both = {prompt: (prompt.lane(False), prompt.lane(True)) for prompt in chosen}
            for pair in both.values():
                for lane in pair:
                    lanes.run(gateway, lane, WARM_UP_S, folder)
            for _ in range(options.rounds):
                for prompt, (small, large) in both.items():
                    values = [lanes.run(gateway, lane, options.seconds, folder) for lane in (small, large)]
                    figures[prompt].append((values[0], values[1]))
    return figures


def write_table(figures: dict[Prompt, list[tuple[float, float]]]) -> str:
    """Return the medians in µs, and the median of the ratios of large to small."""
    lines = [f"{'':<28}small  large  ratio"]
    for prompt, rounds in figures.items():
        small, large = (median(values) for values in zip(*rounds, strict=True))
        ratio = median([above / below for below, above in rounds])
        verdict = f"  beyond the aim of {AIM:.2f}" if prompt.relayed and ratio > AIM else ""
        kind = "relayed" if prompt.relayed else "translated"
        lines.append(f"{prompt.name:<26}{small:7.0f}{large:7.0f}{ratio:7.2f} {kind}{verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
