from rag import Passage, answer, find_passages, read_passages, similarity

from conftest import chat_answer


def vectors(*values):
    data = [{"object": "embedding", "index": place, "embedding": value} for place, value in enumerate(values)]
    return {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def test_nearest_passages_come_first(gateway, monkeypatch):
    monkeypatch.setenv("EMBEDDING_MODEL", "some-embedding-model")
    passages = [Passage("a.md", "far"), Passage("b.md", "near")]
    gateway.answers.append(vectors([1.0, 0.0], [0.0, 1.0], [0.9, 0.1]))
    assert [passage.text for passage in find_passages("question", passages)] == ["near", "far"]


def test_answer_is_asked_from_the_passages(gateway, monkeypatch):
    monkeypatch.setenv("EMBEDDING_MODEL", "some-embedding-model")
    monkeypatch.setenv("CHAT_MODEL", "some-model")
    count = len(read_passages())
    gateway.answers += [vectors(*([1.0, 0.0] for _ in range(count + 1))), chat_answer("30 days [returns.md]")]
    assert answer("How long?") == "30 days [returns.md]"
    prompt = gateway.requests[1][1]["messages"][1]["content"]
    assert prompt.endswith("Question: How long?") and ".md]" in prompt


def test_similarity_of_a_vector_without_length_is_zero():
    assert similarity([0.0, 0.0], [1.0, 0.0]) == 0.0
