"""Video playback in virtual time: generated videos over DASH, from a server like nginx."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.runformat.records import REQUESTS
from cellbed.workloads.browsing import origins
from cellbed.workloads.browsing.virtual import Browser, Files
from cellbed.workloads.kind import Deployment
from cellbed.workloads.video.player import RULES, Player
from cellbed.workloads.video.renditions import CHUNK_S, LADDER
from cellbed.workloads.virtual.model import Model, Setting
from cellbed.workloads.virtual.world import Program, World
from cellbed.workloads.web.virtual import unmodelled_servers
from cellbed_node import lifecycle, machine
from cellbed_node.video.load import Chunk
from cellbed_node.video.playback import Loaded, Playback, Stall, Wanted

if TYPE_CHECKING:
    from cellbed.testbed.plan import Plan

_MANIFEST, _INIT = 700, 800
"""Bytes of the first files that a player reads."""
_BEGIN_NS, _ASK_NS, _CHUNK_NS = 200_000_000, 4_000_000, 16_000_000
"""Processor time of browser and player before the request of the manifest, before the request of a chunk, and after its
arrival (dash.js 5 in Chromium 156)."""


class _Video(Model):
    """Playback of generated videos."""

    covers = ("throughput", "bola", "dynamic")

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        table = each.table
        if table.manifest is not None:
            yield "manifest: only generated videos"
        if table.protocol != "dash":
            yield f'protocol = "{table.protocol}": only "dash"'
        elif table.abr is not None and table.abr not in RULES:
            yield f"abr = '{table.abr}': only {', '.join(RULES)}"
        yield from unmodelled_servers(each)

    def loads(self, each: Deployment, setting: Setting) -> Iterator[_Playing]:
        files = Files(setting.world, each.table.version)
        (port,) = origins.ports(each, each.table.host_names)
        for node in each.servers:
            setting.world.listen(setting.world.hosts[node.name], port, files, each.name, alone=False)
        for index, node in enumerate(each.clients):
            address = each.address(each.servers[index % len(each.servers)])
            program = Program(setting.world, setting.world.hosts[node.name], each.name)
            record = setting.stack.enter_context(lifecycle.open_record(each.file(setting.raw, node, REQUESTS)))
            yield _Playing(
                each, Browser(files, program), (address, port), record.write,
                each.file(setting.raw, node, "client.measures.json"), setting.world,
            )  # fmt: skip


def play(
    player: Player, sizes: Callable[[int, int], int], browser: Browser, server: tuple[str, int],
    make: Callable[[int], Chunk], ended: Callable[[Chunk], None],
) -> None:  # fmt: skip
    """Play a video: request the chunks that the player selects. sizes: bytes of a chunk, by number and rendition; make:
    returns the record of the next chunk of a rendition; ended: called with each arrived chunk."""

    def ask() -> None:
        index = player.choose(machine.now_ns())
        made, size = make(index), sizes(player.loaded, index)
        browser.program.spend(_ASK_NS)

        def arrived(whole: bool, _: int) -> None:
            if whole:
                browser.program.spend(_CHUNK_NS)
                player.arrived(size, made.intended_ns, machine.now_ns())
                ended(made)
                if (next_ns := player.next_ns(machine.now_ns())) is not None:
                    browser.program.world.at(next_ns, lambda: browser.program.call(ask))

        browser.fetch(made, size, 0, server, arrived)

    ask()


class _Playing:
    """The playback at an endpoint. measures: file for its measures."""

    def __init__(
        self, each: Deployment, browser: Browser, server: tuple[str, int], write: Callable[[str], object],
        measures: Path, world: World,
    ) -> None:  # fmt: skip
        self._each, self._browser, self._server, self._write = each, browser, server, write
        self._measures, self._world = measures, world
        self._numbers = itertools.count()
        self._renditions = [each for name, each in LADDER.items() if name in self._each.table.renditions]
        length_s = each.table.length_s
        self._lengths_s = [min(CHUNK_S, length_s - at) for at in range(0, -int(-length_s // 1), CHUNK_S)]
        rates = [rendition.rate for rendition in self._renditions]
        self._player = Player(rates, CHUNK_S, len(self._lengths_s), each.table.abr or RULES[0])
        self._playback = Playback()
        self._awaited: Chunk | None = None
        self._t0_ns = self._end_ns = 0

    @property
    def over(self) -> bool:
        now_ns = self._world.now_ns
        patience_ns = self._each.table.drain if self._awaited is not None else 0
        return self._end_ns > 0 and now_ns >= self._end_ns + patience_ns

    def start(self, t0_ns: int) -> None:
        self._t0_ns, self._end_ns = t0_ns, t0_ns + self._each.stop_ns
        begin_ns = self._playback.begin_ns = t0_ns + self._each.start_ns
        self._world.at(begin_ns, lambda: self._browser.program.call(self._begin))
        for at_ns in (self._end_ns, self._end_ns + self._each.table.drain):
            self._world.at(at_ns, lambda: None)  # so that `over` is checked at these times

    def _begin(self) -> None:
        """Read the manifest and the first segment of the video, then play."""

        def after(size: int, following: Callable[[], None]) -> None:
            made = Chunk(-1, "", machine.now_ns())
            self._browser.fetch(made, size, 0, self._server, lambda whole, _: following() if whole else None)

        self._browser.program.spend(_BEGIN_NS)
        after(_MANIFEST, lambda: after(_INIT, self._play))

    def _play(self) -> None:
        player = self._player
        play(player, self._size, self._browser, self._server, self._make, self._ended)

    def _size(self, number: int, index: int) -> int:
        return int(self._renditions[index].rate * self._lengths_s[number] / 8)

    def _make(self, index: int) -> Chunk:
        rendition, now_ns = self._renditions[index], machine.now_ns()
        made = Chunk(next(self._numbers), self._browser.program.host.name, now_ns, step=f"{rendition.height}p")
        made.chunk, made.rate = self._player.loaded, rendition.rate
        self._playback.buffer.append((now_ns, self._player.buffered_s(now_ns)))
        if now_ns < self._end_ns:
            self._awaited = made
        return made

    def _ended(self, made: Chunk) -> None:
        player, now_ns = self._player, machine.now_ns()
        assert made.chunk is not None
        assert made.rate is not None
        if self._awaited is made:
            self._awaited = None
            height, length_s = int((made.step or "p")[:-1]), self._lengths_s[made.chunk]
            wanted = Wanted(made.rate, height, made.chunk * CHUNK_S, length_s)
            self._playback.loaded.append(Loaded(wanted, made.intended_ns, made.reply_ns or now_ns, made.bytes_down))
            self._record(made)
        self._playback.buffer.append((now_ns, player.buffered_s(now_ns)))

    def _record(self, made: Chunk) -> None:
        made.error = None if made.status == "ok" else "no whole reply before the end of the load"
        self._write(made.line())

    def finish(self) -> None:
        if self._awaited is not None:
            self._record(self._awaited)
        player, playback = self._player, self._playback
        playback.started_ns, playback.stalls = player.started_ns, list(player.stalls)
        until_ns = min(self._world.now_ns, self._end_ns)
        if player.playing_ns is not None and player.loaded < player.count and not player.buffered_s(until_ns):
            playback.stalls.append(Stall(player.playing_ns + player.loaded * CHUNK_S * 10**9, 0.0))
        measures = playback.measures(until_ns, self._t0_ns)
        self._measures.write_text(json.dumps(measures) + "\n", encoding="utf-8")


VIRTUAL = _Video()
