"""`alerts`: the webhooks and e-mail addresses that receive alerts."""

import sys

import click

from gateway.accounts.alert_hooks import FORMS, PAGERDUTY, WEBHOOK, AlertHooks, recognise_form
from gateway.accounts.changes import OPERATOR
from gateway.configuration.mail_settings import MAIL_PASSWORD
from gateway.operator.credit_commands import ORGANIZATION, choose_organization
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, print_result, print_table, say, show_time
from gateway.runtime.state_changes import StateLog
from gateway.store.documents import Documents
from gateway.telemetry.alert_delivery import Alerts
from gateway.transport import Transport
from gateway.transport.mail import Mailer


@click.group()
def alerts() -> None:
    """Webhooks for alerts. Those of the first organization receive alerts about the whole installation."""


@alerts.command("list")
@AS_JSON
@ORGANIZATION
@click.pass_context
def list_(ctx: click.Context, organization: str | None) -> None:
    """List the webhooks of an organization."""
    installation = ctx.with_resource(opened())
    found = _hooks(installation).list_hooks(choose_organization(installation, organization))
    rows = [(one.id, one.form, one.url, ", ".join(one.events) or "all", show_time(one.created_at_us)) for one in found]
    print_table(("ID", "FORM", "ADDRESS", "EVENTS", "CREATED"), rows, "There are no webhooks for alerts.")


@alerts.command()
@AS_JSON
@click.argument("url")
@click.option("--event", "events", multiple=True, help="Send only this event; may be repeated. Default: all.")
@click.option("--form", type=click.Choice(FORMS), help="Message format; default: detected from the URL.")
@ORGANIZATION
@click.pass_context
def add(ctx: click.Context, url: str, events: tuple[str, ...], form: str | None, organization: str | None) -> None:
    """Send alerts to URL: a webhook, Slack, Teams, Discord, PagerDuty or mailto:name@example.com.

    The secret that signs webhooks is printed once. The integration key of PagerDuty is read from standard input.
    """
    installation = ctx.with_resource(opened())
    chosen = choose_organization(installation, organization)
    form = form or recognise_form(url)
    routing_key = ""
    if form == PAGERDUTY:
        routing_key = sys.stdin.readline().strip()
    hooks = _hooks(installation)
    hook = hooks.add(chosen, url, events, form=form, routing_key=routing_key, actor=OPERATOR)
    if form != WEBHOOK:
        print_result(f"{hook.id}\nFormat: {form}", id=hook.id, form=form)
        return
    print_result(f"{hook.id}\nSecret: {hook.secret}", id=hook.id, form=form, secret=hook.secret)
    say("Save it now: it is not shown again.")


@alerts.command()
@AS_JSON
@click.argument("hook_id")
@ORGANIZATION
@click.pass_context
def remove(ctx: click.Context, hook_id: str, organization: str | None) -> None:
    """Remove a webhook."""
    installation = ctx.with_resource(opened())
    _hooks(installation).remove(choose_organization(installation, organization), hook_id, actor=OPERATOR)
    print_result(f"{hook_id} was removed.", id=hook_id, removed=True)


@alerts.command()
@AS_JSON
@click.argument("hook_id")
@ORGANIZATION
@click.pass_context
def test(ctx: click.Context, hook_id: str, organization: str | None) -> int:
    """Send a test alert to a webhook now; exit status 1 if the delivery failed."""
    installation = ctx.with_resource(opened())
    settings = installation.settings
    transport = Transport(settings.timeouts, settings.security, clock=installation.clock)
    mailer = Mailer(settings.mail, settings.secret(MAIL_PASSWORD))
    documents = Documents(installation.database)
    sender = Alerts(_hooks(installation), documents, transport, mailer, StateLog(), installation.clock)
    delivered, result = sender.test(choose_organization(installation, organization), hook_id)
    transport.close()
    print_result(f"{hook_id}: {result.rstrip('.')}.", id=hook_id, delivered=delivered, result=result)
    if delivered:
        return 0
    return 1


def _hooks(installation: Installation) -> AlertHooks:
    allow_private = installation.settings.security.allow_private_upstreams
    return AlertHooks(installation.database, installation.control, installation.vault, allow_private)
