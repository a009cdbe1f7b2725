"""A web page that talks to a model. Each module in `routes` that has a `blueprint` is served."""

import importlib
import os
import pkgutil

import routes
from flask import Flask, Response


def create_app() -> Flask:
    app = Flask(__name__)
    for module in pkgutil.iter_modules(routes.__path__):
        app.register_blueprint(importlib.import_module(f"routes.{module.name}").blueprint)

    @app.get("/")
    def page() -> Response:
        return app.send_static_file("index.html")

    return app


if __name__ == "__main__":
    create_app().run(port=int(os.environ.get("PORT", "3000")), threaded=True)
