"""Options of all commands that serve something: the address, the token, the certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import InputError
from tidegate.report.metrics import ServedMetrics

__all__ = [
    "Certificate",
    "Key",
    "Listen",
    "MetricsAddress",
    "MetricsCertificate",
    "MetricsKey",
    "MetricsPort",
    "MetricsTokenFile",
    "Port",
    "served_metrics",
]

CERTIFICATE = "PEM file with a certificate and its chain, for TLS; a renewed file is noticed."
KEY = "PEM file with the key of the certificate; default: it is in the file of the certificate."

Port = Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")]
Listen = Annotated[
    str,
    typer.Option("--host", help="Address to listen on; requires a token unless it is loopback."),
]
Certificate = Annotated[Path | None, typer.Option(help=CERTIFICATE, metavar="FILE")]
Key = Annotated[Path | None, typer.Option(help=KEY, metavar="FILE")]

MetricsPort = Annotated[
    int | None,
    typer.Option(help="Port on 127.0.0.1 for Prometheus metrics; 0: any port."),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        help="Address for Prometheus metrics, such as 0.0.0.0:9464 in a pod; requires a token "
        "unless it is loopback.",
        metavar="HOST:PORT",
    ),
]
MetricsTokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the bearer token that scrapers must send; default: the environment "
        "variable TIDEGATE_METRICS_TOKEN.",
        metavar="FILE",
    ),
]
MetricsCertificate = Annotated[Path | None, typer.Option(help=CERTIFICATE, metavar="FILE")]
MetricsKey = Annotated[Path | None, typer.Option(help=KEY, metavar="FILE")]


def served_metrics(
    port: int | None,
    address: str | None,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> ServedMetrics:
    """Where metrics are served, from the options of a command."""
    if port is not None and address is not None:
        remedy = "the address has a port already"
        raise InputError("--metrics-port", port, "left out with --metrics-address", remedy)
    files = [str(file) if file is not None else "" for file in (token_file, certificate, key)]
    return ServedMetrics(address or ("" if port is None else f"127.0.0.1:{port}"), *files)
