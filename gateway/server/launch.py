"""Entry point of the server: `python -m gateway.server.launch <arguments of gunicorn>`."""

import os
import sys

from gateway.runtime.process import patch_all

if __name__ == "__main__":  # before any other import, so that every lock and socket is cooperative
    patch_all()

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.util import daemonize

from gateway.runtime.process import end_with
from gateway.server.master import Master


class GunicornApplication(WSGIApplication):
    """gunicorn's application, run by our arbiter."""

    def run(self) -> None:
        if self.cfg.print_config or self.cfg.check_config:
            super().run()
        if self.cfg.daemon:
            daemonize(self.cfg.enable_stdio_inheritance)
        # An installed wheel has the application's module in another folder than the working directory.
        for folder in (self.cfg.pythonpath or "").split(","):
            if folder and os.path.abspath(folder) not in sys.path:
                sys.path.insert(0, os.path.abspath(folder))
        Master(self).run()


def main() -> None:
    """Serve until a signal ends it."""
    GunicornApplication("%(prog)s [OPTIONS] [APP_MODULE]", prog="llmgateway").run()


if __name__ == "__main__":
    end_with(main)
