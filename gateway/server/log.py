"""gunicorn's logs in the same format as all other lines."""

from gunicorn.config import Config
from gunicorn.glogging import Logger

from gateway.telemetry.log_formats import Form, formatter_of


def logger_class(form: Form) -> type[Logger]:
    """The class for gunicorn's `logger_class` setting."""

    class ServerLogger(Logger):
        """gunicorn's error and access log in the chosen format."""

        def setup(self, cfg: Config) -> None:
            super().setup(cfg)
            for logger in (self.error_log, self.access_log):
                for handler in logger.handlers:
                    handler.setFormatter(formatter_of(form))

    return ServerLogger
