"""Starts the server: `python -m gateway.server.launch <what gunicorn takes>`."""

from gevent import monkey

if __name__ == "__main__":  # before any other import, so that every lock and socket is cooperative
    monkey.patch_all()

from gunicorn.app.wsgiapp import WSGIApplication  # noqa: E402
from gunicorn.util import daemonize  # noqa: E402

from gateway.server.master import Master  # noqa: E402


class GunicornApplication(WSGIApplication):
    """gunicorn's application, under our master."""

    def run(self) -> None:
        if self.cfg.print_config or self.cfg.check_config:
            super().run()
        if self.cfg.daemon:
            daemonize(self.cfg.enable_stdio_inheritance)
        Master(self).run()


def main() -> None:
    """Serve until a signal ends it."""
    GunicornApplication("%(prog)s [OPTIONS] [APP_MODULE]", prog="llmgateway").run()


if __name__ == "__main__":
    main()
