"""Opens the page of docs/extending/console-page.md, presses its button, and prints the results.

It runs as a program because the tables of pages are read when modules load: test_contributing.py starts it with a copy
of the package that contains the new page.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from support.console import CSRF, OWN  # noqa: E402
from support.gateways import local_gateway  # noqa: E402

from gateway.accounts.keys import list_keys  # noqa: E402
from gateway.accounts.members import list_members  # noqa: E402
from gateway.configuration import settings  # noqa: E402
from gateway.surfaces.visitors.visitor import COOKIE  # noqa: E402

PATH = "/console/expiries"
DAY_US = 86_400_000_000


def drive(folder: Path) -> dict:
    def make_settings(**environment: str) -> settings.Settings:
        return settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)

    with local_gateway(make_settings) as gateway:
        services = gateway.services
        owner = list_members(services.store.database)[0]
        browser = OWN | {"Cookie": f"{COOKIE}={services.management.sessions.open(owner.user_id).token}"}
        client = gateway.app.flask.test_client(use_cookies=False)
        overview = client.get("/console", headers=browser).text
        page = client.get(PATH, headers=browser).text
        (key,) = list_keys(services.store.database)
        form = {"csrf": CSRF.findall(page)[0], "action": "expire", "key": key.id}
        after = client.post(PATH, headers=browser, data=form).text
        (changed,) = list_keys(services.store.database)
        days = (changed.expires_at_us - services.clock.now_us()) / DAY_US
        refused = client.get(PATH, headers=OWN).status_code
    named = re.compile(rf'href="[^"]*/console/keys/{key.id}"')
    return {
        "linked": f'{PATH}"' in overview,
        "listed": [bool(named.search(text)) for text in (page, after)],
        "message": "The key expires in 30 days." in after,
        "days": days,
        "refused": refused,
    }


print(json.dumps(drive(Path(sys.argv[1]))))
