"""How commands speak: bars, notes, and errors of one line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BROKEN_PIPE = 141


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over images, which goes away when they are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def guarded(run: Callable[..., int], *arguments: Any) -> int:
    """Run a command; what a user can mend is one line, what is our fault a traceback."""
    try:
        with _plain_warnings():
            status = run(*arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return failed("interrupted.", 130)
    except BrokenPipeError:
        return _unheard()
    except (ValueError, OSError, ImportError, RuntimeError, ArithmeticError) as error:
        if type(error) in (RuntimeError, ArithmeticError, ZeroDivisionError):
            raise
        return failed(str(error), 1)


def failed(message: str, status: int) -> int:
    """Say why, and return the status."""
    print(f"onesigma: {message}", file=sys.stderr)
    return status


def _unheard() -> int:
    """The reader has gone, as `head` does; the flush when Python ends must not complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Our own warnings as one line each, once; others' as they are."""
    told: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: Any, filename: str, *more: Any, **named: Any) -> None:
            if "onesigma" not in Path(filename).parts:
                usual(message, category, filename, *more, **named)
            elif str(message) not in told:
                told.add(str(message))
                print(f"onesigma: note: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield
