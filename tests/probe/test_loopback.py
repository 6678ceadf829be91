"""Server and sender on loopback: figures, refusals, the end, and what strangers get."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tests.probe.proxy import Proxy, Weather
from tidegate.errors import BackendError, InputError
from tidegate.lifecycle import Stopped, wait_until
from tidegate.listening import Listening
from tidegate.probe import ProbePlan, ProbeServer, measure
from tidegate.probe.results import Moment
from tidegate.probe.verdict import judge
from tidegate.probe.wire import ANSWER, PING, SMALLEST_PACKET, Packet, pack_packet

TOKEN = "a-token-for-tests"


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    with ProbeServer(Listening()) as running:
        yield running


def arrived(server: ProbeServer) -> int:
    """Packets of the stream that is being sent."""
    return sum(session.packets for session in [*server._sessions.values()])


def test_both_transports_bring_every_tuple_on_loopback(server: ProbeServer) -> None:
    shares: list[float] = []
    plan = ProbePlan((50.0, 2000.0), 1.0)
    found = measure(server.address, plan, on_moment=lambda moment, share: shares.append(share))
    assert [(s.transport, s.rate_per_s) for s in found.streams] == [*plan.streams]
    assert shares == sorted(shares) and len(shares) == len(found.moments) >= 4
    assert found.one_machine, "the clock is that of this machine"
    for stream in found.streams:
        figures = stream.figures
        assert figures.sent == figures.received == figures.answered > 0
        assert figures.sent + figures.skipped == figures.offered
        assert figures.loss == (0.0 if stream.transport == "udp" else None)
        assert figures.delay and figures.one_way and figures.network and figures.lateness
        assert 0 < figures.one_way.mean_s < figures.delay.mean_s
    assert len(found.outliers) == 12
    assert found.outliers[0].delay_s == max(
        s.figures.delay.worst_s for s in found.streams if s.figures.delay
    )


@pytest.mark.parametrize(
    ("listen", "target"),
    [("0.0.0.0", "127.0.0.77"), ("127.0.0.1", "localhost"), ("::1", "::1"), ("::", "::1")],
)
def test_answers_come_from_the_address_that_was_asked(listen: str, target: str) -> None:
    if ":" in listen:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    with ProbeServer(Listening(listen, token=TOKEN)) as server:
        found = measure((target, server.port), ProbePlan((100.0,), 0.3, ("udp",)), TOKEN)
    figures = found.streams[0].figures
    assert figures.answered == figures.sent > 0


def test_another_machine_has_another_clock_and_only_round_trips_are_given() -> None:
    """Its clock is hours behind and runs fast; no figure may show it."""

    def clock_ns() -> int:
        return int((time.monotonic_ns() - 10**16) * 1.0001)

    with ProbeServer(Listening(), shared_clock="elsewhere", clock_ns=clock_ns) as far:
        found = measure(far.address, ProbePlan((200.0,), 0.5))
    assert not found.one_machine
    for stream in found.streams:
        figures = stream.figures
        assert figures.one_way is None
        assert figures.delay and figures.network and figures.jitter and figures.held
        for durations in (figures.delay, figures.network, figures.jitter, figures.held):
            assert durations.worst_s < 60
        assert figures.network.mean_s > 0


def test_the_senders_own_limit_is_not_blamed_on_the_path(server: ProbeServer) -> None:
    plan = ProbePlan((200_000.0,), 0.5, ("udp",), cpu_share=0.01)
    (stream,) = measure(server.address, plan).streams
    figures = stream.figures
    assert figures.throttled_s > 0 and figures.skipped > 0
    assert figures.sender_cpu < 0.25
    assert figures.sent + figures.refused + figures.skipped == figures.offered
    assert judge(stream).limit == "sender"


def test_a_stop_keeps_what_was_measured(server: ProbeServer) -> None:
    stop = threading.Event()

    def when_some_have_arrived() -> None:
        wait_until(lambda: arrived(server) > 20, 60)
        stop.set()

    thread = threading.Thread(target=when_some_have_arrived)
    thread.start()
    found = measure(server.address, ProbePlan((100.0,), 3600.0), stop=stop)
    thread.join()
    assert found.streams[0].figures.answered >= 20
    with pytest.raises(Stopped):
        measure(server.address, ProbePlan((100.0,), 3600.0), stop=stop)


def test_a_server_that_ends_within_a_moment_is_noticed() -> None:
    for transport in ("udp", "tcp"):
        with ProbeServer(Listening()) as short:

            def end_it(running: ProbeServer = short) -> None:
                wait_until(lambda: arrived(running) > 5, 60)
                running.stop()

            thread = threading.Thread(target=end_it)
            thread.start()
            with pytest.raises(BackendError, match=r"closed|reset"):
                measure(short.address, ProbePlan((100.0,), 300.0, (transport,)))
            thread.join()


def test_a_server_that_goes_away_costs_moments_and_the_run_goes_on() -> None:
    first = ProbeServer(Listening()).start()
    later: list[ProbeServer] = []
    seen: list[Moment] = []
    stop = threading.Event()

    def watch(moment: Moment, share: float) -> None:
        seen.append(moment)
        if len(seen) == 1:
            first.stop()
        elif moment.failed and not later:
            later.append(ProbeServer(Listening(port=first.port)).start())
        elif later and moment.figures is not None:
            stop.set()

    try:
        plan = ProbePlan((100.0, 200.0, 300.0, 400.0, 500.0), 1.5, ("udp",))
        found = measure(first.address, plan, stop=stop, on_moment=watch)
    finally:
        for running in later:
            running.stop()
    assert found.outage_s > 0
    assert [bool(moment.failed) for moment in found.moments] == [False, True, False]
    assert "refused" in found.moments[1].failed.lower()


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (lambda: ProbePlan((), 1.0), "--rates is ''; it must be a list of different values"),
        (lambda: ProbePlan((5.0, 5.0), 1.0), "--rates is '5.0,5.0'"),
        (lambda: ProbePlan((2e6,), 1.0), "--rates is 2000000.0"),
        (lambda: ProbePlan((2e5,), 1.0, tuple_bytes=1000), "at most 1 Gbit/s"),
        (lambda: ProbePlan((1.0,), 1.0, ("sctp",)), "--over is 'sctp'"),  # type: ignore[arg-type]
        (lambda: ProbePlan((1.0,), 1.0, tuple_bytes=10), "--tuple-bytes is 10"),
        (lambda: ProbePlan((1.0,), 1.0, cpu_share=0.0), "--cpu is 0.0"),
        (lambda: ProbePlan((1.0,), 0.0), "--for is 0.0"),
    ],
)
def test_a_plan_that_cannot_be_sent_is_refused(plan: object, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        plan()  # type: ignore[operator]
    assert sentence in str(error.value)


def test_a_token_is_needed_and_never_sent() -> None:
    plan = ProbePlan((100.0,), 0.2)
    with (
        ProbeServer(Listening(token=TOKEN)) as server,
        Proxy(server.address, Weather()) as proxy,
    ):
        with pytest.raises(BackendError, match="requires a token"):
            measure(proxy.address, plan)
        with pytest.raises(BackendError, match="the token is missing or wrong"):
            measure(proxy.address, plan, "another-token")
        assert measure(proxy.address, plan, TOKEN).streams
    for way in (proxy.there, proxy.back):
        assert b"nonce" in way.text
        assert TOKEN.encode() not in way.text


def test_a_server_that_does_not_know_the_token_is_noticed() -> None:
    """It repeats what a true one says, but cannot prove that it knows the token."""
    impostor = socket.create_server(("127.0.0.1", 0))

    def pretend() -> None:
        connection, _ = impostor.accept()
        with connection, connection.makefile("rwb") as lines:
            hello = {"tidegate": "probe", "protocol": 1, "nonce": "0", "token": True}
            lines.write(json.dumps(hello).encode() + b"\n")
            lines.flush()
            asked = json.loads(lines.readline())
            said = {"key": 1, "proof": asked["proof"], "machine": "", "kernel_times": True}
            lines.write(json.dumps(said).encode() + b"\n")

    thread = threading.Thread(target=pretend)
    thread.start()
    try:
        with pytest.raises(BackendError, match="does not know the token"):
            measure(impostor.getsockname(), ProbePlan((1.0,), 1.0), TOKEN)
    finally:
        thread.join()
        impostor.close()


def test_strangers_get_no_answer_and_do_no_harm(server: ProbeServer) -> None:
    forged = pack_packet(Packet(PING, 1, SMALLEST_PACKET, 12345, 0, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for datagram in (forged, b"", b"tgp1", os.urandom(1200)):
            udp.sendto(datagram, server.address)
        for text in (
            b"GET / HTTP/1.1\r\n\r\n",
            b'{"stream": 7}\n',
            b"x" * 20_000,
            b"[" * 3000 + b"\n",
        ):
            with socket.create_connection(server.address, 10) as tcp, contextlib.suppress(OSError):
                tcp.sendall(text)
                tcp.shutdown(socket.SHUT_WR)
                while tcp.recv(4096):
                    pass
        (stream,) = measure(server.address, ProbePlan((100.0,), 0.2, ("tcp",))).streams
        assert stream.figures.answered == stream.figures.sent > 0
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(100)
    assert ANSWER.size < SMALLEST_PACKET, "an answer is never longer than what it answers"


def test_a_fifth_stream_is_refused(server: ProbeServer) -> None:
    from tidegate.probe.session import Session

    with contextlib.ExitStack() as opened:
        for _ in range(4):
            opened.enter_context(Session(server.address, None, "udp", 1.0, 1.0, 1000))
        with pytest.raises(BackendError, match="4 streams are being measured already"):
            Session(server.address, None, "udp", 1.0, 1.0, 1000)


def test_the_command_prints_a_verdict_and_writes_a_page(
    server: ProbeServer, tmp_path: Path
) -> None:
    page = tmp_path / "path.html"
    where = f"127.0.0.1:{server.port}"
    done = tidegate("probe", where, "--rates", "100,500", "--for", "800ms", "--out", page)
    assert done.returncode == 0, done.stderr
    assert "share its clock" in done.stdout and str(page) in done.stdout.replace("\n", "")
    html = page.read_text()
    for heading in ("(Fig. 2)", "(Fig. 3)", "(Fig. 4)", "Longest delays"):
        assert heading in html
    words = ("--rates", "100", "--for", "300ms", "--over", "tcp", "--json")
    answer = json.loads(tidegate("probe", "measure", where, *words).stdout)
    assert answer["verdict"] and answer["notes"]
    assert answer["streams"][0]["limit"] in ("none", "sender", "server", "path")
    assert answer["streams"][0]["figures"]["sent"] > 0


def test_ctrl_c_reports_what_was_measured(server: ProbeServer, tmp_path: Path) -> None:
    def interrupt() -> None:
        if wait_until(lambda: arrived(server) > 20, 60):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    where = f"127.0.0.1:{server.port}"
    done = tidegate("probe", where, "--for", "24h", "--out", tmp_path / "path.html")
    thread.join()
    assert done.returncode == 0, done.stderr
    assert "The run was stopped after" in done.stdout
    assert (tmp_path / "path.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("127.0.0.1:1", "--for", "1s"), "no probe answers at 127.0.0.1:1 (Connection refused)"),
        (("127.0.0.1:x",), "HOST is '127.0.0.1:x'; it must be HOST:PORT"),
        (("host", "--rates", "many"), "--rates is 'many'; it must be a number above 0"),
        (("host", "--for", "ever"), "--for is 'ever'"),
        (("--rates", "5"), "Missing argument 'HOST'"),
        (("serve", "--host", "0.0.0.0"), "--host is '0.0.0.0'; it must be a loopback address"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    done = tidegate("probe", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_taken_port_is_named(server: ProbeServer) -> None:
    done = tidegate("probe", "serve", "--port", str(server.port))
    assert done.returncode == 2 and "--port is '127.0.0.1:" in done.stderr
