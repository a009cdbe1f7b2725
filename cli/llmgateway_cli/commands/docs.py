"""`docs`: open a page of the gateway's documentation."""

import click

from llmgateway_cli.browser_sign_in import open_page
from llmgateway_cli.command_lines import ClientCommand, suggestion
from llmgateway_cli.context import ClientContext, json_option, pass_context

TOPICS = {
    "models": "/docs/models",
    "api": "/docs/api",
    "sdk": "/docs/sdk",
    "quickstart": "/docs/quickstart",
}
HOME = "/docs"


@click.command(cls=ClientCommand)
@click.argument("topic", required=False, metavar=f"[{'|'.join(TOPICS)}]")
@json_option
@pass_context
def docs(context: ClientContext, /, topic: str | None) -> None:
    """Open a page of the documentation that this gateway serves."""
    if topic is not None and topic not in TOPICS:
        near = suggestion(topic, TOPICS)
        context.output.warning(f"There is no topic {topic!r}, only {', '.join(TOPICS)}.{near} This is the first page.")
    page = context.settings.dashboard_url + TOPICS.get(topic or "", HOME)
    if context.output.as_json:
        context.output.document({"topic": topic, "url": page})
        return
    context.output.data(page)
    open_page(context, page)
