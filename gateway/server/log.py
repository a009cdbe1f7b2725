"""gunicorn's log in the form of all other lines."""

from gunicorn.config import Config
from gunicorn.glogging import Logger

from gateway.telemetry.formats import Form, formatter_of


def logger_class(form: Form) -> type[Logger]:
    """What gunicorn takes as its `logger_class`."""

    class ServerLogger(Logger):
        """Both of its logs in the chosen form."""

        def setup(self, cfg: Config) -> None:
            super().setup(cfg)
            for logger in (self.error_log, self.access_log):
                for handler in logger.handlers:
                    handler.setFormatter(formatter_of(form))

    return ServerLogger
