"""Requests to stop, from the system or the keyboard, as a flag that the loop reads between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):  # noqa: N818  (not an error: everything is saved)
    """Training stopped early on request, after everything was saved.

    Attributes:
        signal: The number of the signal that asked for it.
        step: The step at which training stopped.
    """

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.signal = signal_number
        self.step = step


class StopRequest:
    """The signal that arrived; 0 while there is none.

    Schedulers of clusters send signals to worker processes too. torch answers the end of a worker by an error in the
    middle of a step, so SIGCHLD is ignored once a stop was requested.
    """

    def __init__(self) -> None:
        self.signal = 0

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Turn SIGTERM and the first SIGINT into the flag; a second SIGINT interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        # None stands for a handler that was not set from Python and cannot be restored
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGINT)}

        def record(number: int, frame: FrameType | None) -> None:
            self.signal = number
            before.setdefault(signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_DFL) or signal.SIG_DFL)
            if number == signal.SIGINT:
                signal.signal(signal.SIGINT, before[signal.SIGINT])

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, record)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
