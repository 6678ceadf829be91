"""Endpoints: which settings reach the channel of Spark Connect, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import tidegate
from tidegate.errors import BackendError, InputError
from tidegate.fleet.connect import USER, explained, read_endpoint, session_id
from tidegate.fleet.hosts import HostRefused
from tidegate.fleet.providers import StaticProvider
from tidegate.model.topology import Resources


def channel_of(text: str) -> Any:
    """The channel that Spark Connect builds for the host of a provider."""
    pytest.importorskip("grpc")
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    provider = StaticProvider("f", [text], Resources(2))
    provider.lease("host-1")
    host: Any = provider.host("host-1")
    url = read_endpoint(host.endpoint).url(session_id=host.session_id, user_id=USER)
    return DefaultChannelBuilder(url)


def test_token_and_tls_reach_the_channel() -> None:
    channel = channel_of("sc://spark.example:15002/;token=s3cret;use_ssl=true;ui=http://x:4040")
    assert channel.endpoint == "spark.example:15002"
    assert (channel.token, channel.use_ssl, channel.secure) == ("s3cret", True, True)
    assert channel.userId == USER
    assert channel.session_id == session_id("f", "sc://spark.example:15002")


def test_a_token_alone_means_tls_and_an_address_alone_does_not() -> None:
    assert channel_of("sc://spark.example:443/;token=s3cret").secure
    plain = channel_of("sc://127.0.0.1:15002")
    assert (plain.secure, plain.token, plain.endpoint) == (False, None, "127.0.0.1:15002")


def test_a_token_with_characters_of_its_own_is_passed_on_as_spark_reads_it() -> None:
    assert channel_of("sc://spark.example:443/;token=a%3Db%3Bc").token == "a=b;c"


def test_a_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("a=b;c/d\n")
    file.chmod(0o600)
    assert channel_of(f"sc://spark.example:443/;token_file={file}").token == "a=b;c/d"
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "of the environment")
    assert channel_of("sc://spark.example:443/;use_ssl=true").token == "of the environment"
    with pytest.raises(InputError, match=r"--endpoint sc://spark.example:443: token_file is"):
        read_endpoint(f"sc://spark.example:443/;token_file={tmp_path / 'none'}")


@pytest.mark.parametrize(
    "endpoint",
    [
        "sc://x:1/;use_ssl=true;token=s3cret", "sc://x:1;token=s3cret", "sc://x:1/token=s3cret",
        "sc://x:1/?token=s3cret", "sc://x:1#token=s3cret", "sc://x:1/;Token=s3cret",
        "sc://x:1/; token = s3cret", "sc://x:1/;token:s3cret", "sc://x:1/;use_ssl=true,token=s3cret",
    ],
)  # fmt: skip
def test_a_token_on_the_command_line_is_refused_and_not_repeated(
    endpoint: str, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.py"
    queries.touch()
    done = tidegate("fleet", "run", queries, "--endpoint", endpoint)
    assert done.returncode == 2
    assert "--endpoint sc://x:1" in done.stderr and "token is '…'" in done.stderr
    assert "token_file" in done.stderr and "s3cret" not in done.stderr


def test_other_settings_of_the_channel_are_kept() -> None:
    channel = channel_of("sc://spark.example:443/;x-route=blue;token=t")
    assert dict(channel.metadata()) == {"x-route": "blue"}


@pytest.mark.parametrize(
    "text, part",
    [
        ("http://x", "sc://host:port"),
        ("sc://", "sc://host:port"),
        ("sc://x:port", "sc://host:port"),
        ("sc://x:1/path", "sc://host:port"),
        ("sc://x:1/;token", "key=value"),
        ("sc://x:1/;token=", "key=value"),
        ("sc://x:1/;use_ssl=maybe;token=s3cret", "true or false"),
        ("sc://x:1/;use_ssl=false;token=s3cret", "a token needs TLS"),
        ("sc://x:1/;session_id=1;token=s3cret", "leave it out"),
        ("s3cret", "sc://host:port"),
        ("sc://x:s3cret", "sc://host:port"),
        ("sc://x:1/s3cret", "sc://host:port"),
        ("sc://x:1 s3cret", "sc://host:port"),
        ("sc://x:1?s3cret", "from the environment or a file"),
        ("sc://x:1#s3cret", "from the environment or a file"),
        ("sc://me:s3cret@x:1", "from the environment or a file"),
        ("sc://x:1/;s3cret", "key=value"),
        ("sc://x:1/;use ssl=s3cret", "key=value"),
        ("sc://x:1/;use_ssl=s3cret", "true or false"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_remedy_and_without_the_token(
    text: str, part: str
) -> None:
    with pytest.raises(InputError, match=part) as caught:
        StaticProvider("f", [text], Resources(2))
    assert "s3cret" not in str(caught.value)


def test_a_server_is_given_once() -> None:
    with pytest.raises(InputError, match="each server once"):
        StaticProvider("f", ["sc://x:1", "sc://x:1/;token=t"], Resources(2))


def test_a_token_shows_nowhere() -> None:
    endpoint = read_endpoint("sc://x:1/;token=s3cret")
    assert "s3cret" not in repr(endpoint)
    provider = StaticProvider("f", ["sc://x:1/;token=s3cret"], Resources(2))
    provider.lease("host-1")
    host: Any = provider.host("host-1")
    assert host.place == "sc://x:1"


@pytest.mark.parametrize(
    "text, part",
    [
        ("<_InactiveRpcError: StatusCode.UNAUTHENTICATED: invalid token>", "token_file=…"),
        ("StatusCode.UNAVAILABLE: Ssl handshake failed: WRONG_VERSION_NUMBER", "use_ssl=true"),
    ],
)
def test_a_connection_that_is_refused_says_what_to_do(text: str, part: str) -> None:
    found = explained(RuntimeError(text), "sc://x:1")
    assert isinstance(found, BackendError) and part in str(found) and "sc://x:1" in str(found)
    other = RuntimeError("division by zero")
    assert explained(other, "sc://x:1") is other


def test_only_who_does_not_take_us_refuses() -> None:
    for text in ("UNAUTHENTICATED", "UNAVAILABLE: ssl handshake failed"):
        assert isinstance(explained(RuntimeError(text), "sc://x:1"), HostRefused)
    # Those with handshakes are of a server without TLS that is cut off.
    for text in ("connection refused", "tcp handshaker shutdown", "Handshake timed out"):
        silent = explained(RuntimeError(f"UNAVAILABLE: {text}"), "sc://x:1")
        assert isinstance(silent, BackendError) and not isinstance(silent, HostRefused)
