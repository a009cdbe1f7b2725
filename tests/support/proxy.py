"""The nginx configuration of deploy/ in front of gateways of the tests."""

import datetime
import ipaddress
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.gateways import ROOT, free_port
from support.programs import find_program

CONFIGURATION = ROOT / "deploy" / "nginx.conf"
Edit = Callable[[str], str]  # changes the configuration
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def write_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for localhost to the paths in the configuration."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    signed = builder.add_extension(x509.SubjectAlternativeName(names), False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "fullchain.pem").write_bytes(signed.public_bytes(pem))
    (folder / "privkey.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return folder / "fullchain.pem"


def uncomment_path(text: str) -> str:
    """Return the configuration with its example path enabled."""
    return re.sub(r"# (location /llm/ \{)\n\s+# +(proxy_pass [^\n]+)\n\s+# \}", r"\1 \2 }", text)


class Nginx:
    """An nginx that listens on `port` with TLS (or without, for tests that do not need it) and on `plain_port` without
    TLS."""

    def __init__(self, folder: Path, ports: list[int], secure: bool = True, edit: Edit = str) -> None:
        binary = find_program("nginx", "nginx-light")
        self.port, self.plain_port = free_port(), free_port()
        self.address = f"{'https' if secure else 'http'}://127.0.0.1:{self.port}"
        self.certificate = write_certificate(folder)
        servers = "\n".join(f"server 127.0.0.1:{port} max_fails=2 fail_timeout=1s;" for port in ports)
        text = edit(CONFIGURATION.read_text())
        text = re.sub(r"server 127\.0\.0\.1:4001[^\n]*", servers, text)
        text = text.replace("listen 80;", f"listen 127.0.0.1:{self.plain_port};")
        text = text.replace("listen 443", f"listen 127.0.0.1:{self.port}").replace("/etc/nginx/tls", str(folder))
        if not secure:
            text = text.replace(" ssl http2;", ";")
        text = text.replace("/var/log/nginx", str(folder))
        text = text.replace("worker_processes auto;", "worker_processes 1;\ndaemon off;\nuser root;")
        temporary = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in TEMPORARY)
        (folder / "nginx.conf").write_text(text.replace("http {\n", "http {\n" + temporary, 1))
        command = [binary, "-c", str(folder / "nginx.conf"), "-g", f"pid {folder}/nginx.pid;"]
        command += ["-e", f"{folder}/error.log"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
