"""The work of a servant until its task is over. Apart from :mod:`cellbed.shell.servant`, since a shell that starts one
does without asyncio and starts the sooner."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from cellbed.shell.servant import tell


async def serve(*jobs: Coroutine[Any, Any, None], **more: int) -> None:
    """In the servant: report that it is ready, with `more` in the event, and do `jobs` until standard input ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    tasks = [asyncio.create_task(job) for job in jobs]
    tell("ready", "", **more)
    await ended.wait()
    for task in tasks:
        task.cancel()
