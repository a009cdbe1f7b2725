"""The help on each page of the console: what it shows, and the guide that says more. The key ? opens it."""

from typing import NamedTuple


class PageHelp(NamedTuple):
    """The help on a page; `guide` is the name of a guide, with an anchor where only a part of it is meant, "" without
    one."""

    title: str
    text: str
    guide: str = ""


HELP: dict[str, PageHelp] = {
    "/console": PageHelp(
        "Overview",
        "Spend, requests, errors and latency of a period, the reasons of each change, and all that waits for you. "
        "Each figure leads to the page that explains it.",
        "console",
    ),
    "/console/explore": PageHelp(
        "Explore",
        "A measure over time, by one or two groups, compared with another period. Select a part of the plot to zoom "
        "in, and click a bar to see its requests. A view can be saved under a name.",
        "console",
    ),
    "/console/outcomes": PageHelp(
        "Outcomes",
        "Commits, pull requests, lines and edits that coding agents report, with the cost of each, and what was saved "
        "and wasted. People are compared only if an owner turned it on.",
        "outcomes",
    ),
    "/console/logs": PageHelp(
        "Requests",
        "Each request with its status, tokens, duration and cost, newest first. Open one to see its provider calls, "
        "its routing and, if the project retains payloads, its messages.",
        "console",
    ),
    "/console/sessions": PageHelp(
        "Sessions",
        "The sessions of coding agents, each with its turns, cost and cache hits. Open one to see where the cache was "
        "lost.",
        "sessions",
    ),
    "/console/jobs": PageHelp(
        "Jobs",
        "Batches, videos and background responses of a project, with their progress, their cost so far and the errors "
        "of their lines. Results, errors and inputs are downloads.",
        "jobs",
    ),
    "/console/files": PageHelp(
        "Files", "Files that requests and batches name, with their expiry and what they take of the quota.", "jobs"
    ),
    "/console/playground": PageHelp(
        "Playground",
        "Send a prompt to one to four models and compare answers, cost and speed. Requests cost what those of your "
        "keys cost. Conversations stay in this browser. A run sends logged requests to another model, with the cost "
        "first.",
        "console#playground",
    ),
    "/console/models": PageHelp(
        "Models", "The models that you can call, with prices, limits and providers.", "catalogue"
    ),
    "/console/providers": PageHelp(
        "Providers", "Health and latency of each provider, its keys, and cooldowns that requests avoid.", "providers"
    ),
    "/console/routing": PageHelp(
        "Routing", "The providers that a request would be sent to, in order, with the reason of each choice.", "routing"
    ),
    "/console/setup": PageHelp("Clients", "Settings of editors, agents and libraries, ready to copy.", "clients"),
    "/console/keys": PageHelp(
        "API keys", "Keys with their spending and limits. The token of a key is shown once, when it is made.", "limits"
    ),
    "/console/people": PageHelp(
        "People", "Members and invitations, with the role, the teams and the spending of each person.", "permissions"
    ),
    "/console/teams": PageHelp("Teams", "Teams share limits, access rules and settings.", "limits"),
    "/console/budgets": PageHelp(
        "Budgets", "Limits of anything that costs money, what is used of each, and requests for more.", "limits"
    ),
    "/console/projects": PageHelp(
        "Projects", "Projects separate keys and settings: routing, caching, retention and rate limits.", "concepts"
    ),
    "/console/automation": PageHelp(
        "Automation", "Service accounts and workload identities for programs that use the management API.", "management"
    ),
    "/console/alerts": PageHelp("Alerts", "Addresses that receive alerts, with a button to test each.", "operating"),
    "/console/guardrails": PageHelp(
        "Guardrails", "Rules that look for values in requests and answers, and mask, warn or refuse.", "guardrails"
    ),
    "/console/routes": PageHelp(
        "Routes", "Model names that choose the model of each request by rules, with versions and savings.", "routes"
    ),
    "/console/audit": PageHelp(
        "Audit log", "Each change, who made it and when, in a chain that cannot be edited.", "security"
    ),
    "/console/settings": PageHelp(
        "Settings", "Name, credits, compliance policy and access rules of an organization.", "access-rules"
    ),
    "/console/system": PageHelp(
        "System", "Workers, jobs, database and disk of the installation, for its operators.", "operating"
    ),
    "/console/account": PageHelp("Your account", "Your password, passkeys, sessions and applications.", "passkeys"),
}
