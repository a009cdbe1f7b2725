"""Answer a question from the texts in `documents`: python rag.py "How are refunds handled?" """

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from connection import connect

DOCUMENTS = Path(__file__).with_name("documents")
QUESTION = "How long can I return a product?"
BEST = 3


@dataclass(frozen=True)
class Passage:
    """A paragraph of a document."""

    source: str
    text: str


def read_passages(folder: Path = DOCUMENTS) -> list[Passage]:
    """Return the paragraphs of all documents."""
    return [
        Passage(path.name, paragraph.strip())
        for path in sorted(folder.glob("*.md"))
        for paragraph in path.read_text("utf-8").split("\n\n")
        if paragraph.strip()
    ]


def embed(texts: list[str]) -> list[list[float]]:
    """Return one vector for each text."""
    answer = connect().embeddings.create(model=os.environ["EMBEDDING_MODEL"], input=texts, encoding_format="float")
    return [entry.embedding for entry in answer.data]


def similarity(first: list[float], other: list[float]) -> float:
    """Return the cosine of the angle between two vectors."""
    lengths = math.hypot(*first) * math.hypot(*other)
    return sum(a * b for a, b in zip(first, other, strict=True)) / lengths if lengths else 0.0


def find_passages(question: str, passages: list[Passage]) -> list[Passage]:
    """Return the passages that are nearest to the question."""
    vector, *others = embed([question, *(passage.text for passage in passages)])
    ranked = sorted(zip(passages, others, strict=True), key=lambda pair: similarity(vector, pair[1]), reverse=True)
    return [passage for passage, _ in ranked[:BEST]]


def answer(question: str) -> str:
    """Return the model's answer, which names its sources."""
    passages = find_passages(question, read_passages())
    context = "\n\n".join(f"[{passage.source}] {passage.text}" for passage in passages)
    completion = connect().chat.completions.create(
        model=os.environ["CHAT_MODEL"],
        messages=[
            {"role": "system", "content": "Answer from the given passages only, and name their sources."},
            {"role": "user", "content": f"{context}\n\nQuestion: {question}"},
        ],
    )
    return completion.choices[0].message.content or ""


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or QUESTION))
