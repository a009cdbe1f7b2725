"""The HTTP session of OpenTelemetry's exporters, on the way that the gateway's own calls take."""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from gateway.transport.outgoing_routes import ForwardProxy, Route
from gateway.transport.request_bytes import Origin


class RoutedAdapter(HTTPAdapter):
    """An adapter with the proxy and the authorities of a route."""

    def __init__(self, route: Route) -> None:
        self._route = route
        super().__init__()

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._route.tls(), **more)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._route.tls(), **more)

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the headers for the proxy. Its address here has no credentials."""
        given = self._route.proxy
        if given is None or not given.authorization:
            return {}
        return {"Proxy-Authorization": given.authorization}


def open_session(origin: Origin, route: Route) -> requests.Session:
    """Return a session for one destination; it reads no variables of the environment."""
    session = requests.Session()
    session.trust_env = False
    session.mount(f"{origin.scheme}://", RoutedAdapter(route))
    if route.proxy is not None:
        session.proxies = {origin.scheme: address_of(route.proxy)}
    return session


def address_of(proxy: ForwardProxy) -> str:
    """Return the URL of a proxy without its credentials."""
    host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    return f"http://{host}:{proxy.port}"
