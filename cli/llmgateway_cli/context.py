"""The object that every command gets: settings, output, and the client, which is created when it is first used."""

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmgateway_cli.output import Output
from llmgateway_cli.settings import Settings

if TYPE_CHECKING:
    from llmgateway_cli.http_client import ApiClient

Command = TypeVar("Command", bound=Callable[..., Any])


class ClientContext:
    """Settings, output and client of one run of the program."""

    def __init__(self, settings: Settings, output: Output) -> None:
        self.settings = settings
        self.output = output

    @cached_property
    def client(self) -> "ApiClient":
        """The HTTP client. Its module imports requests, which takes a tenth of a second."""
        module = importlib.import_module("llmgateway_cli.http_client")
        client: ApiClient = module.ApiClient(self.settings, self.output)
        return client


class IntegerOption(click.IntRange):
    """A whole number in decimal digits; int() also reads 1_000 and digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (not value.isascii() or "_" in value):
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


pass_context = click.make_pass_decorator(ClientContext)


def _use_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(ClientContext).output.as_json = True


def json_option(command: Command) -> Command:
    """Add `--json` to a command: `context.output.as_json` is then true."""
    option = click.option(
        "--json", is_flag=True, expose_value=False, callback=_use_json, help="Print one JSON document."
    )
    return option(command)
