"""Fetch the console's vendored files from npm, and check them: `make console-assets`.

`gateway/surfaces/console/assets/vendored.toml` names each package with its version, its licence, the integrity that the
npm registry states for the package, and the SHA-256 of the file. To update one: change its version, run the target, and
review the difference.
"""

import base64
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parents[1] / "gateway" / "surfaces" / "console" / "assets"
TABLE = ASSETS / "vendored.toml"


def read_table() -> dict[str, dict[str, str]]:
    """Return the row of each vendored file by its name."""
    return tomllib.loads(TABLE.read_text())


def fetch(row: dict[str, str], folder: Path) -> tuple[bytes, dict[str, str]]:
    """Return the file of a row from the npm registry, and the row with the package's licence and hashes."""
    command = ["npm", "pack", "--json", "--pack-destination", str(folder), f"{row['package']}@{row['version']}"]
    packed: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    archive = (folder / packed[0]["filename"]).read_bytes()
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        body = _read(files, f"package/{row['path']}")
        licence = json.loads(_read(files, "package/package.json"))["license"]
    found = {"license": licence, "integrity": f"sha512-{digest}", "sha256": hashlib.sha256(body).hexdigest()}
    return body, {**row, **found}


def _read(files: tarfile.TarFile, name: str) -> bytes:
    member = files.extractfile(name)
    if member is None:
        raise SystemExit(f"The package has no file {name}.")
    return member.read()


def main() -> None:
    """Fetch each file, and write it and its row."""
    table = TABLE.read_text()
    for name, row in read_table().items():
        with tempfile.TemporaryDirectory() as folder:
            body, renewed = fetch(row, Path(folder))
        (ASSETS / name).write_bytes(body)
        head, mark, tail = table.partition(f'["{name}"]\n')
        for field, value in renewed.items():
            tail = re.sub(rf'^{field} = ".*"$', f'{field} = "{value}"', tail, count=1, flags=re.MULTILINE)
        table = head + mark + tail
        print(f"{name}: {renewed['package']} {renewed['version']} ({renewed['license']})")
    TABLE.write_text(table)


if __name__ == "__main__":
    main()
