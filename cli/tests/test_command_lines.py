"""Command lines with a mistake: nothing that was typed is without an effect, and what was meant is suggested."""

from collections.abc import Iterator

import click
import pytest
from harness.client_runs import Client
from harness.fake_service import FakeService

from gateway.batches.batch_table import ENDED
from gateway.guardrails import rule_sets
from gateway.jobs import response_jobs
from gateway.neutral.videos import FINAL_STATES
from gateway.surfaces.openai import batches as batches_module
from gateway.surfaces.openai import files as files_module
from gateway.videos.job_table import RUNNING as VIDEO_RUNNING
from llmgateway_cli import job_views
from llmgateway_cli.commands import files, guardrails, jobs
from llmgateway_cli.main import COMMANDS, main

Path = tuple[str, ...]


def commands(command: click.Command = main, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Yield every command with its place."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))


SINGLE = [
    (path, option.opts[-1])
    for path, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and not option.multiple and not option.is_flag
]
MISSPELT = {
    ("kyes", "list"): "Did you mean keys?",
    ("modles",): "Did you mean models",
    ("usge",): "Did you mean usage?",
    ("keys", "lst"): "'list'",
    ("claud",): "claude",
    ("launch", "claud"): "claude",
    ("models", "-c", "imag"): "image",
    ("init", "x", "-t", "image-generatoin"): "image-generation",
    ("usage", "--by", "modle"): "model",
    ("add", "tool", "wether"): "",
}


def test_the_walk_finds_options() -> None:
    assert {path[0] for path, _ in SINGLE if path} >= {"keys", "usage", "models", "logs", "launch"} - {"models"}
    assert len(SINGLE) > 30


@pytest.mark.parametrize(("path", "option"), SINGLE, ids=lambda value: " ".join(value) if value else "")
def test_an_option_with_one_value_is_not_given_twice(
    path: Path, option: str, service: FakeService, service_client: Client
) -> None:
    message = service_client.refused(*path, option, "1", option, "2", code=2)
    assert f"{option} takes one value" in message
    assert service.calls == []


def test_numbers_are_typed_in_decimal_digits(service: FakeService, service_client: Client) -> None:
    numbers = [(path, command, option) for path, command in commands() for option in command.params
               if isinstance(option.type, click.types.IntParamType)]  # fmt: skip
    assert len(numbers) >= 5
    for path, command, option in numbers:
        needed = ["x" for one in command.params if isinstance(one, click.Argument) and one.required]
        for typed in ("１２", "²", "1_0"):
            message = service_client.refused(*path, *needed, option.opts[-1], typed, code=2)
            assert "is not a whole number" in message, path
    assert service.calls == []


@pytest.mark.parametrize("typed", MISSPELT, ids=" ".join)
def test_a_misspelt_word_is_refused_with_a_suggestion(typed: Path, user: Client) -> None:
    message = user.refused(*typed, code=2 if "command" in user.run(*typed, code=None).stderr else 1)
    assert MISSPELT[typed] in message


def test_the_name_of_every_command_is_suggested_for_a_misspelt_one(service_client: Client) -> None:
    for name in COMMANDS:
        misspelt = name[:-1] + "q" if len(name) > 3 else f"{name}q"
        assert name in service_client.refused(misspelt, code=2)


def test_choices_of_commands_are_those_of_the_gateway() -> None:
    assert guardrails.ACTIONS == rule_sets.ACTIONS
    assert guardrails.PLACES == rule_sets.PLACES
    assert files.PURPOSES == files_module.PURPOSES
    assert jobs.ENDPOINTS == batches_module.ENDPOINTS
    ended = ENDED | FINAL_STATES | response_jobs.FINAL
    known = {*batches_module.STATES, *VIDEO_RUNNING, response_jobs.QUEUED, response_jobs.IN_PROGRESS, "canceling"}
    assert set(job_views.RUNNING) == known - ended
