"""ClickHouse's HTTP interface in front of its engine in this process (chdb). A program: port file, data folder, user,
password.

It takes what the gateway sends and refuses everything else. A file `faults` in the data folder says what happens to the
next inserts: `refuse 2` answers two with an error, `lose 1` takes one and closes the connection without an answer.
"""

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from chdb import session

SETTINGS = {"wait_end_of_query": "1"}  # query parameters of every statement
QUOTED = "output_format_json_quote_64bit_integers"  # on unless a statement says otherwise, as in servers before 25.8
TOKEN = "insert_deduplication_token"
CODE = re.compile(r"Code: (\d+)")
UNKNOWN_TABLE, UNKNOWN_SETTING, REFUSED_USER, MEMORY = 60, 115, 516, 241


class Engine:
    """The one session of the process; statements run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._session = session.Session(str(folder / "store"))
        self._lock = threading.Lock()

    def run(self, database: str, sql: str, params: dict[str, str], quoted: str) -> bytes:
        with self._lock:
            self._session.query(f"SET {QUOTED} = {quoted}")
            self._session.query(f"CREATE DATABASE IF NOT EXISTS {database}")
            self._session.query(f"USE {database}")
            return bytes(self._session.query(sql, "TabSeparated", params=params or None).bytes())

    def fault(self) -> str:
        """Take the next fault of an insert; "" for none."""
        file = self.folder / "faults"
        with self._lock:
            kind, _, count = (file.read_text() if file.exists() else "").partition(" ")
            if not kind:
                return ""
            left = int(count) - 1
            file.write_text(f"{kind} {left}" if left else "")
            return kind


class Front(ThreadingHTTPServer):
    """The server. `account` is the user and the password that it takes."""

    def __init__(self, engine: Engine, account: tuple[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine
        self.account = account

    def handle_error(self, *_: object) -> None:
        """Ignore callers that were killed."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if (self.headers.get("x-clickhouse-user"), self.headers.get("x-clickhouse-key")) != self.server.account:
            return self.refuse(403, REFUSED_USER, "Authentication failed")
        params = {name[6:]: parameters.pop(name) for name in list(parameters) if name.startswith("param_")}
        database = parameters.pop("database")
        sql = parameters.pop("query", "")
        token = parameters.pop(TOKEN, "")
        quoted = parameters.pop(QUOTED, "1")
        if parameters != SETTINGS:
            return self.refuse(404, UNKNOWN_SETTING, f"Unknown settings {parameters}")
        fault = self.server.engine.fault() if sql.startswith("INSERT") else ""
        if fault == "refuse":
            return self.refuse(500, MEMORY, "Memory limit exceeded")
        if token:
            sql = sql.replace(" FORMAT ", f" SETTINGS {TOKEN} = '{token}' FORMAT ")
        try:
            answer = self.server.engine.run(database, f"{sql} {body}", params, quoted)
        except Exception as error:
            found = CODE.search(str(error))
            code = int(found[1]) if found else 0
            return self.refuse(404 if code == UNKNOWN_TABLE else 500, code, str(error))
        if fault == "lose":
            self.close_connection = True
            return None
        return self.reply(200, answer)

    def refuse(self, status: int, code: int, text: str) -> None:
        self.reply(status, f"Code: {code}. DB::Exception: {text}\n".encode(), str(code))

    def reply(self, status: int, body: bytes, code: str = "") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if code:
            self.send_header("x-clickhouse-exception-code", code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    port_file, folder, user, password = sys.argv[1:]
    engine = Engine(Path(folder))
    server = Front(engine, (user, password))
    Path(port_file).write_text(str(server.server_port))
    server.serve_forever()


if __name__ == "__main__":
    main()
