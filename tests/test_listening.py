"""Where servers listen and who may connect, with real certificates."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.certificates import Pair, self_signed, with_passphrase
from tidegate.errors import InputError
from tidegate.listening import Listening, names_loopback, read_address, same_token

TOKEN = "tide-and-gate-and-tide"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return self_signed(tmp_path_factory.mktemp("certificates"))


def name_of(context: ssl.SSLContext, trusted: Path) -> str:
    """The name in the certificate that a server with this context shows."""
    ours, theirs = socket.socketpair()
    client = ssl.create_default_context(cafile=str(trusted))

    def serve() -> None:
        with theirs, context.wrap_socket(theirs, server_side=True) as secure:
            secure.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname="127.0.0.1") as secure:
            subject = secure.getpeercert()["subject"]  # type: ignore[index]
            secure.sendall(b"x")
    finally:
        server.join()
    return str(subject[0][0][1])


@pytest.mark.parametrize("wrong", ["", "9464", ":9464", "0.0.0.0", "host:http", "::1:9464", "a:-1"])
def test_an_address_without_host_or_port_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"--metrics-address is .* HOST:PORT"):
        read_address(wrong, "--metrics-address")
    with pytest.raises(InputError, match="65535"):
        read_address("127.0.0.1:65536", "--metrics-address")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("host:65535", ("host", 65_535)),
        ("[::1]:9464", ("::1", 9_464)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert read_address(text, "--address") == address


@pytest.mark.parametrize("wrong", ["[]:1", "[::1:1", "::1]:1", "[::1]", "a:1.5"])
def test_an_address_with_half_of_its_brackets_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        read_address(wrong, "--address")


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(InputError, match="--port"):
        Listening(port=port)
    assert (Listening(port=65_535).port, Listening().port, Listening().host) == (
        65_535,
        0,
        "127.0.0.1",
    )


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("localhost", True),
        ("LocalHost:80", True),
        ("127.0.0.1:80", True),
        ("[::1]", True),
        ("[::1]:80", True),
        ("", False),
        ("localhost.evil.example", False),
        ("evil.example:80", False),
        ("10.0.0.1", False),
        ("[::2]:80", False),
        ("[::1]evil", False),
        ("[::1]:80.evil", False),
        ("[::1", False),
        ("localhost:evil", False),
    ],
)
def test_a_server_on_loopback_answers_to_its_own_names(header: str, ours: bool) -> None:
    assert names_loopback(header) == Listening().is_named(header) == ours
    assert Listening("0.0.0.0", token=TOKEN).is_named(header), "beyond loopback it has any name"


def test_a_host_in_a_url() -> None:
    assert Listening("::1").shown_host == "[::1]"
    assert Listening("127.0.0.1").shown_host == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_beyond_loopback_a_token_is_required(host: str) -> None:
    with pytest.raises(InputError, match="give a --metrics-token-file"):
        Listening(host, prefix="--metrics-")
    Listening(host, token=TOKEN)


@pytest.mark.parametrize(
    "token", ["", "short", "eleven char", "tide-and-gäte-and-tide", "x" * 20 + "\n"]
)
def test_a_token_that_is_short_or_no_ascii_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InputError, match="--token is '…'"):
        Listening(token=token)
    assert Listening(token="twelve chars").token == "twelve chars"


def test_two_addresses_are_equal_however_their_options_are_called() -> None:
    named = Listening(port=80, prefix="--metrics-")
    assert named == Listening(port=80) != Listening(port=81)
    assert repr(named) == repr(Listening(port=80))


def test_a_token_is_in_no_representation() -> None:
    assert TOKEN not in repr(Listening(token=TOKEN))


def test_only_a_bearer_of_the_token_is_admitted() -> None:
    at = Listening(token=TOKEN)
    assert at.admits(f"Bearer {TOKEN}") and at.admits(f"bearer  {TOKEN} ")
    for wrong in (
        "",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}s",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
    ):
        assert not at.admits(wrong)
    assert not at.admits("Bearer \udcff"), "what is no text is only wrong"
    assert Listening().admits("")
    assert same_token("ä", "ä") and not same_token("ä", "a")


def test_a_certificate_with_its_key_serves(pair: Pair, tmp_path: Path) -> None:
    at = Listening(certificate=pair.certificate, key=pair.key)
    context = at.tls()
    assert at.scheme == "https" and context is not None
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert name_of(context, pair.certificate) == "server"
    together = tmp_path / "both.pem"
    together.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    both = Listening(certificate=together).tls()
    assert both is not None and name_of(both, pair.certificate) == "server"
    assert Listening().tls() is None and Listening().scheme == "http"


def test_a_certificate_that_cannot_be_used_is_a_sentence(pair: Pair, tmp_path: Path) -> None:
    other = self_signed(tmp_path, "other")
    old = self_signed(tmp_path, "old", days=-1)
    weak = self_signed(tmp_path, "weak", curve="prime192v1")
    rare = self_signed(tmp_path, "rare", curve="secp224r1")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for certificate, key, said in (
        (tmp_path / "none.pem", pair.key, "--certificate is .*none.pem.*No such file"),
        (pair.certificate, tmp_path / "none.key", "--key is .*none.key.*No such file"),
        (tmp_path, pair.key, "--certificate is .*readable PEM file"),
        (text, pair.key, "--certificate is .*OpenSSL can read"),
        (pair.certificate, text, "--certificate is .*OpenSSL can read"),
        (pair.certificate, None, "--certificate is .*OpenSSL can read"),
        (pair.certificate, other.key, f"--key is '{other.key}'.*another certificate"),
        (pair.certificate, pair.certificate, f"server.* with {pair.certificate}"),
        (pair.certificate, with_passphrase(pair.key), "without a passphrase"),
        (
            old.certificate,
            old.key,
            "--certificate is .*certificate has expired.*renew or replace it",
        ),
        (weak.certificate, weak.key, r"OpenSSL can read \(ee key too small\)"),
        (rare.certificate, rare.key, r"clients accept \(no shared cipher\)"),
        (None, pair.key, "--key is .*left out.*--certificate"),
    ):
        with pytest.raises(InputError, match=said) as raised:
            Listening(certificate=certificate, key=key)
        assert "()" not in str(raised.value), "a reason that is not known is not mentioned"


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = self_signed(tmp_path / "now", "first")
    context = Listening(certificate=now.certificate, key=now.key).tls()
    assert context is not None
    first = tmp_path / "first.pem"
    first.write_bytes(now.certificate.read_bytes())
    assert name_of(context, first) == "first"
    new = self_signed(tmp_path / "new", "second")
    new.certificate.replace(now.certificate)
    assert name_of(context, first) == "first", "the key is not there yet"
    assert name_of(context, first) == "first"
    new.key.replace(now.key)
    assert name_of(context, now.certificate) == "second"
    assert name_of(context, now.certificate) == "second"
    (said,) = caplog.messages
    assert "the one before it stays: --key is" in said, "once, and not at each connection"
    second = now.certificate.rename(tmp_path / "second.pem")
    assert name_of(context, second) == "second"
    assert len(caplog.messages) == 2


def test_a_token_over_plain_http_is_warned_about(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    Listening("127.0.0.1").warn_if_readable("metrics")
    secure = Listening("0.0.0.0", token=TOKEN, certificate=pair.certificate, key=pair.key)
    secure.warn_if_readable("metrics")
    assert caplog.messages == []
    Listening("0.0.0.0", token=TOKEN, prefix="--metrics-").warn_if_readable("metrics")
    (said,) = caplog.messages
    assert said.startswith("metrics on 0.0.0.0 are served without TLS")
    assert "--metrics-certificate" in said and TOKEN not in said
