"""Sets and shows the field of docs/extending/resource-field.md, and prints the results.

It runs as a program because models and tables are read when modules load: test_contributing.py starts it with a copy of
the package that contains the new field.
"""

from gevent import monkey

monkey.patch_all()

import contextlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from support.console import CSRF, OWN  # noqa: E402
from support.gateways import local_gateway  # noqa: E402

from gateway.accounts.members import list_members  # noqa: E402
from gateway.configuration import settings  # noqa: E402
from gateway.operator import derived_commands  # noqa: E402
from gateway.surfaces.visitors.visitor import COOKIE  # noqa: E402

FIRST, SECOND, THIRD = (f"{name}@acme.example" for name in ("first", "second", "third"))


def drive(folder: Path) -> dict:
    def make_settings(**environment: str) -> settings.Settings:
        return settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)

    with local_gateway(make_settings) as gateway:
        services = gateway.services
        owner = list_members(services.store.database)[0]
        token = services.management.sessions.open(owner.user_id).token
        headers = {"Authorization": f"Bearer {token}"}
        client = gateway.app.flask.test_client(use_cookies=False)
        path = f"/projects/{gateway.project_id}"
        before = client.get(path, headers=headers).json["project"]
        changed = client.patch(path, json={"contact": FIRST}, headers=headers).json["project"]
        refused = client.patch(path, json={"contact": "x" * 256}, headers=headers)
        browser = OWN | {"Cookie": f"{COOKIE}={token}"}
        page = client.get(f"/console{path}?tab=settings", headers=browser).text
        form = {name: changed[name] for name in ("name", "mode", "cacheMarkers", "routing", "retention")}
        form |= {"cacheDurationSeconds": "60", "retentionDays": "30", "contact": SECOND}
        form |= {"csrf": CSRF.findall(page)[0], "action": "save"}
        saved = client.post(f"/console{path}?tab=settings", headers=browser, data=form).text
        data_folder = services.settings.database.data_dir
    os.environ["GATEWAY_DATA_DIR"] = data_folder
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        command = ["set", gateway.project_id, "--contact", THIRD]
        derived_commands.projects.main([*command, "--json"], standalone_mode=False)
    return {
        "before": before["contact"],
        "changed": changed["contact"],
        "refused": [refused.status_code, refused.json.get("param")],
        "shown": FIRST in page and "Contact" in page,
        "saved": SECOND in saved,
        "printed": printed.getvalue(),
    }


print(json.dumps(drive(Path(sys.argv[1]))))
