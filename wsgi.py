"""WSGI entry point: `gunicorn wsgi:app`."""

from gateway.application.starting import start

app = start()
