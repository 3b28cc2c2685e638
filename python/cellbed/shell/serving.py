"""The work of an agent. Apart from :mod:`cellbed.shell.agent`, since a shell that starts one does not need asyncio and
starts sooner without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from cellbed.shell.agent import report


async def serve(*jobs: Coroutine[Any, Any, None], **more: int) -> None:
    """In the agent: report that it is ready, with `more` in the event, and run `jobs` until standard input ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    tasks = [asyncio.create_task(job) for job in jobs]
    report("ready", "", **more)
    await ended.wait()
    for task in tasks:
        task.cancel()
