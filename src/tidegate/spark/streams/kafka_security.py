"""The security of connections to Kafka: SASL and TLS.

It is described in the location of a topic, by Kafka's own file of client settings or one by one::

    kafka://a:9093/shop?security_file=/etc/kafka/client.properties
    kafka://a:9093/shop?security=SASL_SSL&mechanism=SCRAM-SHA-512&user=shop&password_file=/run/kafka
    kafka://a:9093/shop?security=SSL&truststore=ca.crt&keystore=tls.crt&keystore_key=tls.key

A location is on command lines and in logs, so passwords are in files or in the environment
(``TIDEGATE_KAFKA_PASSWORD``, ``TIDEGATE_KAFKA_TRUSTSTORE_PASSWORD`` and
``TIDEGATE_KAFKA_KEYSTORE_PASSWORD``). They are in no error and in no representation.

Certificates and keys in PEM files are read here and sent to the executors with the query. Stores in
other formats are read where Kafka's client runs, so executors need them at the same path.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from tidegate.credentials import secret_from
from tidegate.errors import InputError

__all__ = ["PLAIN_TEXT", "SECURITY_SETTINGS", "KafkaSecurity", "read_security"]

log = logging.getLogger(__name__)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
"""Kafka's login modules by mechanism; other mechanisms are described in a file of settings."""
SECURITY_SETTINGS = (
    "security",
    "mechanism",
    "user",
    "password_file",
    "truststore",
    "truststore_password_file",
    "keystore",
    "keystore_key",
    "keystore_password_file",
    "security_file",
)
"""The settings of a location that are about security."""
_OURS = ("security.", "sasl.", "ssl.")
_FILES = ("ssl.truststore.location", "ssl.keystore.location")
_SECRET = re.compile(r"password|secret|jaas|\.key$", re.IGNORECASE)
_IN_JAAS = re.compile(r'(?i)(?:password|secret|token)\w*\s*=\s*"((?:[^"\\]|\\.)*)"')
_PEM = b"-----BEGIN "
_PEM_KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How to connect to Kafka.

    settings: Kafka's own settings for clients, such as ``security.protocol``, as pairs; they may
        contain passwords and are not shown.
    """

    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """The protocol and the mechanism."""
        known = dict(self.settings)
        parts = (known.get("security.protocol", "PLAINTEXT"), known.get("sasl.mechanism", ""))
        return " with ".join(part for part in parts if part)

    def for_spark(self) -> dict[str, str]:
        """Options for Spark's Kafka connector."""
        return {f"kafka.{key}": value for key, value in self.settings}

    def without_secrets(self, text: str) -> str:
        """A text in which no secret of these settings is left."""
        secrets = {value for key, value in self.settings if _SECRET.search(key)}
        for value in list(secrets):
            inside = _IN_JAAS.findall(value)
            secrets |= {*inside, *map(_unescaped, inside)}
        for secret in sorted(secrets - {""}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


PLAIN_TEXT = KafkaSecurity()
"""No security, which is Kafka's default."""


def read_security(given: Mapping[str, str]) -> KafkaSecurity:
    """The security of a location. given: those of its settings that are in `SECURITY_SETTINGS`.

    Raises InputError if a setting is missing or wrong, or a file cannot be read.
    """
    chosen = {key: value for key, value in given.items() if value}
    if "security_file" in chosen:
        others = sorted(set(chosen) - {"security_file"})
        if others:
            remedy = "write it into the file"
            raise InputError(others[0], chosen[others[0]], "left out with security_file", remedy)
        return _of_file(chosen["security_file"])
    if not chosen:
        return PLAIN_TEXT
    protocol = chosen.get("security", "").upper()
    if protocol not in PROTOCOLS:
        remedy = "it is the protocol of the broker's listener"
        raise InputError("security", chosen.get("security"), " or ".join(PROTOCOLS), remedy)
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL_"):
        found |= _login(chosen)
    else:
        _refuse(chosen, ("mechanism", "user", "password_file"), "SASL_PLAINTEXT or SASL_SSL")
    if protocol.endswith("SSL"):
        found |= _trust(chosen) | _identity(chosen)
    else:
        stores = [name for name in SECURITY_SETTINGS if name.startswith(("truststore", "keystore"))]
        _refuse(chosen, stores, "SSL or SASL_SSL")
    return KafkaSecurity(tuple(found.items()))


def _refuse(chosen: Mapping[str, str], names: tuple[str, ...] | list[str], protocol: str) -> None:
    for name in names:
        if name in chosen:
            remedy = f"or set security to {protocol}"
            raise InputError(name, chosen[name], f"left out with {chosen['security']}", remedy)


def _login(chosen: Mapping[str, str]) -> dict[str, str]:
    mechanism = chosen.get("mechanism", "").upper()
    if mechanism not in LOGIN_MODULES:
        remedy = "others, such as GSSAPI and OAUTHBEARER, are described in a security_file"
        raise InputError("mechanism", chosen.get("mechanism"), " or ".join(LOGIN_MODULES), remedy)
    user, file = chosen.get("user"), chosen.get("password_file")
    if user is None:
        raise InputError("user", None, "given with SASL", "name the user of Kafka")
    password = secret_from(file, "TIDEGATE_KAFKA_PASSWORD", "password_file")
    if password is None:
        remedy = "give a password_file, or set the environment variable TIDEGATE_KAFKA_PASSWORD"
        raise InputError("password", None, "given with SASL", remedy)
    login = f"{LOGIN_MODULES[mechanism]} required username={_quoted(user)}"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{login} password={_quoted(password)};",
    }


def _quoted(text: str) -> str:
    r"""A word for JAAS.

    >>> _quoted('a"b\\')
    '"a\\"b\\\\"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _trust(chosen: Mapping[str, str]) -> dict[str, str]:
    """Certificates of the brokers that are trusted; without any, those that Java trusts."""
    if "truststore" not in chosen:
        _refuse_password(chosen, "truststore")
        return {}
    path = chosen["truststore"]
    content = _read(path, "truststore")
    if content.lstrip().startswith(_PEM):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": content.decode()}
    return _store(chosen, "truststore", path, content)


def _identity(chosen: Mapping[str, str]) -> dict[str, str]:
    """The certificate and the key of this client, for brokers that ask for them."""
    if "keystore" not in chosen:
        _refuse_password(chosen, "keystore")
        if "keystore_key" in chosen:
            remedy = "give the keystore with the certificate too"
            raise InputError("keystore_key", chosen["keystore_key"], "left out", remedy)
        return {}
    path = chosen["keystore"]
    content = _read(path, "keystore")
    if not content.lstrip().startswith(_PEM):
        return _store(chosen, "keystore", path, content)
    text = content.decode()
    key_path = chosen.get("keystore_key", path)
    key = _PEM_KEY.search(_read(key_path, "keystore_key").decode("utf-8", "replace"))
    if key is None or key.group(1) not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        remedy = "convert it with openssl pkcs8 -topk8 -nocrypt"
        option = "keystore_key" if "keystore_key" in chosen else "keystore"
        raise InputError(option, key_path, "a PEM file with a key in PKCS 8", remedy)
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _PEM_KEY.sub("", text).strip(),
        "ssl.keystore.key": key.group(),
    }
    password = _store_password(chosen, "keystore")
    return found if password is None else found | {"ssl.key.password": password}


def _store(chosen: Mapping[str, str], which: str, path: str, content: bytes) -> dict[str, str]:
    """A store in one of Java's formats, with its password."""
    jks = content.startswith(b"\xfe\xed\xfe\xed")
    if not jks and not content.startswith(b"\x30"):
        raise InputError(which, path, "a store in the format PEM, PKCS 12 or JKS")
    found = {
        f"ssl.{which}.type": "JKS" if jks else "PKCS12",
        f"ssl.{which}.location": str(Path(path).resolve()),
    }
    password = _store_password(chosen, which)
    if password is None:
        if which == "keystore" or not jks:
            variable = f"TIDEGATE_KAFKA_{which.upper()}_PASSWORD"
            remedy = f"give a {which}_password_file, or set the environment variable {variable}"
            raise InputError(f"password of the {which}", None, "given", remedy)
        return found
    return found | {f"ssl.{which}.password": password}


def _store_password(chosen: Mapping[str, str], which: str) -> str | None:
    variable = f"TIDEGATE_KAFKA_{which.upper()}_PASSWORD"
    return secret_from(chosen.get(f"{which}_password_file"), variable, f"{which}_password_file")


def _refuse_password(chosen: Mapping[str, str], which: str) -> None:
    key = f"{which}_password_file"
    if key in chosen:
        raise InputError(key, chosen[key], "left out", f"give the {which} too")


def _read(path: str | PathLike[str], option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or "unreadable"
        raise InputError(option, str(path), "a readable file", why) from None


# --- Kafka's own files of settings ------------------------------------------------------------


def _of_file(path: str) -> KafkaSecurity:
    """The security that a file of Kafka's settings for clients describes."""
    try:
        text = _read(path, "security_file").decode()
    except UnicodeDecodeError:
        raise InputError("security_file", path, "a text file in UTF-8") from None
    read = _properties(text)
    found = {key: value for key, value in read.items() if key.startswith(_OURS)}
    ignored = sorted(set(read) - set(found))
    if ignored:
        log.warning("settings in %s that are not about security: %s", path, ", ".join(ignored))
    if found.get("security.protocol", "").upper() not in PROTOCOLS:
        value = found.get("security.protocol")
        allowed = " or ".join(PROTOCOLS)
        raise InputError(f"security.protocol in {path}", value, allowed, "see Kafka's manual")
    for key in _FILES:
        if key in found:
            _read(found[key], f"{key} in {path}")
    return KafkaSecurity(tuple(found.items()))


def _properties(text: str) -> dict[str, str]:
    r"""The pairs in a file of properties, by the rules of Java.

    >>> _properties("# a comment\na.b = 1\\\n    2\nc:x=y\nd\\=e \\u00e4\n")
    {'a.b': '12', 'c': 'x=y', 'd=e': 'ä'}
    """
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip(" \t\f")
        if whole[:1] in ("", "#", "!"):
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        at = 0
        while at < len(whole) and whole[at] not in "=: \t\f":
            at += 2 if whole[at] == "\\" else 1
        value = whole[at:].lstrip(" \t\f")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t\f")
        found[_unescaped(whole[:at])] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        code = found.group(1)
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meant, text)
