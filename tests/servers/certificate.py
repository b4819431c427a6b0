"""A certificate for this machine that nobody else vouches for."""

import subprocess
from pathlib import Path


def certify(folder: Path) -> tuple[str, str]:
    """A key and a certificate for `localhost`, signed by itself."""
    options = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *options.split(), *files], cwd=folder, check=True, capture_output=True)
    return str(folder / "key.pem"), str(folder / "cert.pem")
