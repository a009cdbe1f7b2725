"""`completion`: scripts with which a shell completes commands, options and names."""

import click
from click.shell_completion import get_completion_class

from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_LLMGATEWAY_COMPLETE"
# The command that a user runs once, by shell.
SETUP_COMMANDS = {
    "bash": "echo 'eval \"$(llmgateway completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(llmgateway completion zsh)\"' >> ~/.zshrc",
    "fish": "llmgateway completion fish > ~/.config/fish/completions/llmgateway.fish",
}


@click.command(cls=ClientCommand)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(click_context: click.Context, shell: str) -> None:
    """Print the script that completes this program's commands and options in a shell."""
    context = click_context.find_object(ClientContext)
    kind = get_completion_class(shell)
    assert context is not None and kind is not None
    program = click_context.find_root()
    script = kind(program.command, {}, program.info_name or "llmgateway", VARIABLE)
    context.output.data(script.source())
    context.output.info(f"To use it in every shell: {SETUP_COMMANDS[shell]}")
