"""A request to stop, from the system or the keyboard, as a flag that the loop looks at between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):  # noqa: N818  (not an error: everything is saved)
    """Training ended early on request, with everything saved; `signal` is what asked for it."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.signal = signal_number
        self.step = step


class StopRequest:
    """Which signal came, 0 for none.

    Schedulers send it to worker processes too. torch would answer their end by an error in the middle of a step, so the
    ends of processes go unnoticed from then on.
    """

    def __init__(self) -> None:
        self.signal = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Turn SIGTERM and the first SIGINT into the flag; a second SIGINT interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        # None stands for a handler that was not set from Python, and cannot be put back
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGINT)}

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number
            before.setdefault(signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_DFL) or signal.SIG_DFL)
            if number == signal.SIGINT:
                signal.signal(signal.SIGINT, before[signal.SIGINT])

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
