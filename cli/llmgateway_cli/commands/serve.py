"""`serve`: start a gateway that is installed on this machine."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from llmgateway_cli.agents.programs import replace_process
from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext, IntegerOption, pass_context
from llmgateway_cli.errors import CliError

PROGRAM = "llmgateway-manage"
CHECKOUT = Path(__file__).resolve().parents[3]


@click.command(cls=ClientCommand)
@click.option("-p", "--port", type=IntegerOption(1, 65535), help="Port to listen on (default: PORT, else 4001).")
@pass_context
def serve(context: ClientContext, /, port: int | None) -> None:
    """Start an installed gateway, or explain how to install one."""
    environment = dict(context.settings.environment)
    if port is not None:
        environment["PORT"] = str(port)
    command = server_command(environment)
    context.output.info(f"Starting {command[0]} at http://127.0.0.1:{environment.get('PORT', '4001')}.")
    replace_process(command, environment)


def server_command(environment: Mapping[str, str]) -> Sequence[str]:
    """Return the command that serves: of the checkout that this client lies in, else of the installed server. Raises
    CliError without either."""
    own = CHECKOUT / "manage"
    if own.exists() and os.access(own, os.X_OK) and (CHECKOUT / "gateway").is_dir():
        return [str(own), "serve"]
    # A server that is installed beside this client need not be on PATH.
    places = os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH", "")])
    program = shutil.which(PROGRAM, path=places)
    if program is None:
        raise CliError(
            f"No gateway is installed on this machine: there is no program `{PROGRAM}`.",
            "Run `make serve` in a checkout of the gateway, or install its wheel: `make wheel`, then "
            "`pip install dist/llmgateway-*.whl` and the requirements.",
        )
    return [program, "serve"]
