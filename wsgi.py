"""The WSGI application: `gunicorn wsgi:app`."""

from gateway.starting import start

app = start()
