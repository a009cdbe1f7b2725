"""Answer a file of prompts in parallel: python batch.py prompts.jsonl -o answers.jsonl

Each line of the file is {"id": "…", "prompt": "…"}. Lines that are already answered are skipped, so a run that was
interrupted continues.
"""

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from connection import connect
from openai import OpenAI, OpenAIError


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON object a line; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def answer(client: OpenAI, prompt: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a prompt with its cost in USD, or the error. The client retries what can be retried."""
    try:
        completion = client.chat.completions.create(
            model=os.environ["CHAT_MODEL"], messages=[{"role": "user", "content": prompt["prompt"]}]
        )
    except OpenAIError as error:
        return {"id": prompt["id"], "error": str(error)}
    cost = getattr(completion.usage, "cost", 0) or 0
    return {"id": prompt["id"], "answer": completion.choices[0].message.content, "cost": float(cost)}


def run(prompts: Path, answers: Path, workers: int = 4) -> tuple[int, int, float]:
    """Answer what has no answer yet. Returns how many were answered, how many failed, and the cost."""
    done = {line["id"] for line in read_lines(answers) if "answer" in line}
    left = [prompt for prompt in read_lines(prompts) if prompt["id"] not in done]
    client = connect()
    answered, failed, cost = 0, 0, 0.0
    with ThreadPoolExecutor(workers) as pool, answers.open("a", encoding="utf-8") as file:
        for future in as_completed([pool.submit(answer, client, prompt) for prompt in left]):
            result = future.result()
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
            file.flush()
            answered += "answer" in result
            failed += "error" in result
            cost += result.get("cost", 0.0)
    return answered, failed, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="?", type=Path, default=Path("prompts.jsonl"))
    parser.add_argument("-o", "--output", type=Path, default=Path("answers.jsonl"))
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    answered, failed, cost = run(options.prompts, options.output, options.workers)
    print(f"{answered} answered, {failed} failed, ${cost:.6f}. Answers: {options.output}")


if __name__ == "__main__":
    main()
