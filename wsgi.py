"""The WSGI application: `gunicorn wsgi:app`."""

from gateway.app import create_app

app = create_app()
