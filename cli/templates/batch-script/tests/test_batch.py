import json

from batch import read_lines, run

from conftest import chat_answer


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_prompts_are_answered_once(gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("CHAT_MODEL", "some-model")
    prompts = write(tmp_path / "in.jsonl", {"id": "a", "prompt": "A?"}, {"id": "b", "prompt": "B?"})
    answers = write(tmp_path / "out.jsonl", {"id": "a", "answer": "A!"})
    gateway.answers.append(chat_answer("B!", cost=0.25))
    assert run(prompts, answers) == (1, 0, 0.25)
    assert read_lines(answers)[-1] == {"id": "b", "answer": "B!", "cost": 0.25}
    assert run(prompts, answers) == (0, 0, 0.0)


def test_failed_prompt_is_tried_again_in_the_next_run(gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("CHAT_MODEL", "some-model")
    prompts = write(tmp_path / "in.jsonl", {"id": "a", "prompt": "A?"})
    answers = write(tmp_path / "out.jsonl", {"id": "a", "error": "The provider was down."})
    gateway.answers.append(chat_answer("A!"))
    assert run(prompts, answers)[0] == 1
