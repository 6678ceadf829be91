"""The controller of an application elsewhere: waits for its agent, scales it, and ends with it."""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidegate.errors import BackendError, SettingError
from tidegate.lifecycle import from_handler, on_signals
from tidegate.logs import handled_by, log_fields, log_format, log_formatter
from tidegate.spark.autoscaler.agent import AgentGateway, NoAnswer, NotInControl, NotThere
from tidegate.spark.autoscaler.attachment import Attachment
from tidegate.spark.autoscaler.autoscaler import STOP_S

__all__ = ["Place", "run_controller"]

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Time between two looks at whether the agent is there, or the application has ended."""


class Place(NamedTuple):
    """Where an agent is.

    url: its address. token: its token. ca_file, certificate: see `AgentGateway`. announced: whether
    the token is from the file in which the agent announced itself.
    """

    url: str
    token: str
    ca_file: Path | None = None
    announced: bool = False
    certificate: str = ""


def run_controller(
    place: Callable[[], Place],
    attachment: Attachment,
    wait_s: float,
    follow: bool = False,
    standby: bool = False,
    form: str | None = None,
    application: str = "",
) -> int:
    """Scale an application until it ends or a signal asks to stop; return an exit code.

    A controller that an agent has started ends with its driver, too.

    Args:
        place: Returns where the agent is; called again for each application.
        attachment: The settings of the autoscaler.
        wait_s: Longest time to wait for the agent, in seconds.
        follow: Whether to wait for the next application afterwards, without a time limit.
        standby: Whether to wait while another controller is at work, in place of an error.
        form: Format of the log, text or json. Default: by the environment.
        application: Id or name of the application to wait for; empty: any.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(log_format(form), "tidegate: %(message)s"))
    with handled_by(handler, ("tidegate",)), _stopped_by_signals() as stop:
        _stop_with_the_driver(stop)
        limit_s = wait_s
        while True:
            gateway = _await(place, application, attachment.dry_run, limit_s, standby, stop)
            if gateway is None:
                return 0
            with log_fields(application=gateway.application):
                report = _control(gateway, attachment, stop)
            if report and log_format(form) == "json":
                log.warning("%s", report)
            elif report:
                print(report, file=sys.stderr)
            if stop.is_set() or not follow:
                return 0
            limit_s = float("inf")


def _control(gateway: AgentGateway, attachment: Attachment, stop: threading.Event) -> str:
    """Scale one application until it ends; return the report of a dry run."""
    log.warning("attached to %s (%s, Spark %s)", gateway.name, gateway.application, gateway.version)
    try:
        autoscaler = attachment.autoscaler(gateway).start()
    except BaseException:
        gateway.leave()
        raise
    while not stop.wait(LOOK_S) and not gateway.stopped and autoscaler.alive:
        pass
    dead = not autoscaler.alive and not gateway.stopped and not stop.is_set()
    end_s = time.monotonic() + STOP_S
    autoscaler.stop()
    if dead:
        raise BackendError("the autoscaler has stopped; start it again")
    if gateway.stopped:
        log.warning("the application has ended")
    else:
        log.warning("detached; the executors stay as they are")
    return autoscaler.dry_run_report(end_s - time.monotonic())


def _await(
    place: Callable[[], Place],
    application: str,
    watch_only: bool,
    wait_s: float,
    standby: bool,
    stop: threading.Event,
) -> AgentGateway | None:
    """The gateway, as soon as the agent lets this controller in; None when stopped before.

    The time to wait counts from the last sign of the application: another controller at work.
    """
    end_s = time.monotonic() + wait_s
    said, unanswered = "", False
    while not stop.is_set():
        at: Place | None = None
        try:
            at = place()
            return AgentGateway(
                at.url,
                at.token,
                at.ca_file,
                watch_only,
                application=application,
                certificate=at.certificate,
            )
        except NotInControl as error:
            # A request without an answer may have taken control; that lease ends after a while.
            if not standby and (not unanswered or time.monotonic() >= end_s):
                raise
            if standby:
                end_s = time.monotonic() + wait_s
            why = f"{error}; waiting"
        except SettingError as error:
            # An agent that has just started announces its token when it has an application id.
            if at is None or not at.announced or error.key != "token":
                raise
            why = f"waiting for the agent at {at.url} to announce itself"
            if time.monotonic() >= end_s:
                raise
        except NoAnswer as error:  # the driver is suspended, or it has just died
            unanswered = True
            why = f"waiting: {error}"
            if time.monotonic() >= end_s:
                raise
        except NotThere as error:
            why = f"waiting: {error}"
            if at is not None and not application:
                why = f"waiting for the agent at {at.url}"
            if time.monotonic() >= end_s:
                raise BackendError(
                    f"{error}; start the application with the agent's jar and "
                    "spark.plugins=io.tidegate.spark.TidegatePlugin, or raise --wait"
                ) from None
        if why != said:
            said = why
            log.warning("%s", why)
        stop.wait(LOOK_S)
    return None


def _stop_with_the_driver(stop: threading.Event) -> None:
    """Set an event when the driver that has started this process dies.

    The agent keeps the other end of a pipe that is this process's standard input.
    """
    if "TIDEGATE_CONTROLLER_ID" not in os.environ or sys.stdin is None:
        return
    number = sys.stdin.fileno()
    if not stat.S_ISFIFO(os.fstat(number).st_mode):
        return  # started by a script with another standard input

    def wait() -> None:
        while os.read(number, 4096):
            pass
        stop.set()

    threading.Thread(target=wait, name="tidegate-driver", daemon=True).start()


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, while the block runs."""
    stop = threading.Event()
    with on_signals(lambda: from_handler(stop.set)):
        yield stop
