"""`doctor`: find what keeps this client from working."""

from collections.abc import Iterator

import click

from llmgateway_cli.command_lines import ClientCommand
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.diagnosis.agent_checks import check_agent_settings, check_agents
from llmgateway_cli.diagnosis.findings import ERROR, OK, WARNING, Finding
from llmgateway_cli.diagnosis.local_checks import (
    check_addresses,
    check_configuration,
    check_key_sources,
    check_proxy,
)
from llmgateway_cli.diagnosis.service_checks import ServiceChecks
from llmgateway_cli.errors import CliError
from llmgateway_cli.values import show_many


@click.command(cls=ClientCommand)
@json_option
@pass_context
def doctor(context: ClientContext, /) -> None:
    """Check addresses, clock, key, session, versions and the settings of agents.

    Each fault comes with its remedy. The exit code is 1 if there is an error; warnings alone do not change it.
    """
    findings = list(diagnose(context))
    errors = sum(finding.status == ERROR for finding in findings)
    warnings = sum(finding.status == WARNING for finding in findings)
    if context.output.as_json:
        context.output.document(
            {"findings": [finding.document for finding in findings], "errors": errors, "warnings": warnings}
        )
    else:
        context.output.fields([line for finding in findings for line in lines_of(finding)])
    if errors:
        raise CliError(f"{errors} of {show_many(len(findings), 'check')} found an error.", "The remedies are above.")
    context.output.success(f"No errors; warnings: {warnings}.")


def diagnose(context: ClientContext) -> Iterator[Finding]:
    """Yield the findings, first of this machine. Later checks are left out where an earlier one failed."""
    own = list(check_configuration(context))
    yield from own
    if any(finding.status == ERROR for finding in own):
        return
    addresses = list(check_addresses(context))
    yield from addresses
    if all(finding.status == OK for finding in addresses):
        yield from check_proxy(context)
        yield from check_key_sources(context)
        yield from diagnose_service(context)
        yield from check_agent_settings(context)
    yield from check_agents(context)


def diagnose_service(context: ClientContext) -> Iterator[Finding]:
    """Yield the findings about the service; without an answer only that it is missing."""
    checks = ServiceChecks(context)
    yield from checks.check_service()
    if checks.answers:
        yield from checks.check_clock()
        yield from checks.check_key()
        yield from checks.check_session()
        yield from checks.check_versions()


def lines_of(finding: Finding) -> list[tuple[str, str]]:
    """Return a finding and its remedy as names and values."""
    lines = [(f"{finding.status} {finding.check}", finding.message)]
    if finding.remedy:
        lines.append(("remedy", finding.remedy))
    return lines
