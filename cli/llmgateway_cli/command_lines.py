"""Commands and groups of the client: they refuse what would have no effect, and suggest what was meant."""

import difflib
from collections.abc import Iterable

import click

SUGGESTIONS = 3
CUTOFF = 0.5
MARGIN = 0.2


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the sentence ` Did you mean …?` with similar words, "" without any."""
    near = difflib.get_close_matches(word.lower(), list(known), SUGGESTIONS, CUTOFF)
    if near:  # A word that is much less similar than the best one was not meant.
        least = difflib.SequenceMatcher(None, word.lower(), near[0]).ratio() - MARGIN
        near = [one for one in near if difflib.SequenceMatcher(None, word.lower(), one).ratio() >= least]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _refuse_repeated_options(command: click.Command, context: click.Context, arguments: list[str]) -> None:
    """Raise UsageError for an option with one value that was given twice: the first one would have no effect."""
    if context.resilient_parsing:
        return
    _, _, given = command.make_parser(context).parse_args(args=list(arguments))
    for parameter in given:
        times = given.count(parameter)
        if isinstance(parameter, click.Option) and not parameter.multiple and not parameter.is_flag and times > 1:
            names = "/".join(parameter.opts)
            raise click.UsageError(f"{names} takes one value; it was given {times} times.", context)


class ClientCommand(click.Command):
    """A command that takes each option once, except for options with several values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


class ClientGroup(click.Group):
    """A group of such commands."""

    command_class = ClientCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)
