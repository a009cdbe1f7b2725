"""Checks of answers: a service of another kind or version is reported, and never a fault of this program."""

from typing import Any

from llmgateway_cli.errors import CliError

REMEDY = "Check the address; the service may be another one, or newer than this program."


def object_of(answer: Any, *path: str) -> dict[str, Any]:
    """Return the object at a path of an answer. Raises CliError if it is missing."""
    for name in path:
        if not isinstance(answer, dict):
            break
        answer = answer.get(name)
    if not isinstance(answer, dict):
        raise unexpected_answer(".".join(path) or "object")
    return answer


def list_of(answer: Any, name: str) -> list[dict[str, Any]]:
    """Return the list of objects in a member of an answer. Raises CliError if it is missing."""
    value = object_of(answer).get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise unexpected_answer(name)
    return value


def text_of(answer: dict[str, Any], name: str) -> str:
    """Return a non-empty text member of an answer. Raises CliError if it is missing."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise unexpected_answer(name)
    return value


def unexpected_answer(name: str) -> CliError:
    """Return the error of an answer without the member `name`."""
    return CliError(f"The service's answer cannot be understood: {name!r} is missing or has another type.", REMEDY)
