"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def self_signed(folder: Path, name: str = "server", days: int = 2, curve: str = "P-256") -> Pair:
    """A certificate for 127.0.0.1 that signs itself.

    days: until it expires; -1: it has. curve: of the key, as OpenSSL names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key, asked, made = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
    names = folder / f"{name}.ext"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes",
        "-keyout", key, "-out", asked, "-subj", f"/CN={name}",
    )  # fmt: skip
    _openssl(
        "x509", "-req", "-in", asked, "-signkey", key, "-days", days, "-extfile", names,
        "-out", made,
    )  # fmt: skip
    return Pair(made, key)


def with_passphrase(key: Path) -> Path:
    """A copy of a key that nobody can read without its passphrase."""
    locked = key.with_suffix(".locked")
    _openssl("ec", "-in", key, "-aes256", "-passout", "pass:sesame", "-out", locked)
    return locked


def key_store(pair: Pair, password: str) -> Path:
    """A certificate and its key in a key store of the format PKCS12."""
    store = pair.certificate.with_suffix(".p12")
    _openssl(
        "pkcs12", "-export", "-in", pair.certificate, "-inkey", pair.key, "-out", store,
        "-passout", f"pass:{password}",
    )  # fmt: skip
    return store


def _openssl(*words: object) -> None:
    command = ["openssl", *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
