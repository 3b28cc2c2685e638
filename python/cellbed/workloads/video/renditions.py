"""Renditions of a generated video, made once by ffmpeg, and their manifests for DASH and HLS."""

import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellbed.support.errors import CellbedError
from cellbed.workloads.cache import Note, build_file, build_folder
from cellbed_node import inputs
from cellbed_node.processes import die_with_parent

VERSION = 1
"""Version of the generated files; a higher version generates them again."""
FRAMES_PER_S, CHUNK_S = 30, 4
_SCENE_S = 20
"""Maximum length of the encoded scene, seconds. A longer video repeats the scene, so that encoding time is bounded."""


@dataclass(frozen=True, slots=True)
class Rendition:
    """A rendition of the video. rate: bit/s."""

    name: str
    width: int
    height: int
    rate: int


LADDER = {
    each.name: each
    for each in (
        Rendition("720p", 1280, 720, 4_000_000),
        Rendition("1080p", 1920, 1080, 8_000_000),
        Rendition("2160p", 3840, 2160, 12_000_000),
    )
}
"""Bit rates, resolutions, frames and chunks of Lim et al., "An Empirical Study of 5G: Effect of Edge on Transport
Protocol and Application Performance", §VII-B."""


def folder(cache: Path, length_s: float) -> Path:
    """Return the folder with the renditions of a length, and their manifests."""
    return cache / "videos" / f"{length_s:g}-{VERSION}"


def manifest(names: Sequence[str], protocol: str) -> str:
    """Return the name of the file that lists renditions. protocol: dash or hls."""
    return f"{'-'.join(name for name in LADDER if name in names)}.{'mpd' if protocol == 'dash' else 'm3u8'}"


def build(cache: Path, names: Sequence[str], length_s: float, protocol: str, note: Note) -> None:
    """Make the renditions that the cache lacks, and their manifest. Raises CellbedError."""
    place, chosen = folder(cache, length_s), [LADDER[name] for name in LADDER if name in names]
    for each in chosen:
        if not (place / each.name).is_dir():
            build_folder(place / each.name, lambda inside, each=each: _encode(each, length_s, inside, note))  # type: ignore[misc]
    if not (file := place / manifest(names, protocol)).is_file():
        codecs = [codec(inputs.content(place / each.name / "init.mp4")) for each in chosen]
        text = (mpd if protocol == "dash" else playlist)(list(zip(chosen, codecs, strict=True)), length_s)
        build_file(file, lambda path: _write(path, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def mpd(renditions: Sequence[tuple[Rendition, str]], length_s: float) -> str:
    """Return the manifest for DASH (ISO/IEC 23009-1). renditions: with their codecs. Pure."""
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011" type="static"'
            f' mediaPresentationDuration="PT{length_s:g}S" minBufferTime="PT{CHUNK_S}S">',
            ' <Period><AdaptationSet mimeType="video/mp4" segmentAlignment="true" startWithSAP="1">',
            f'  <SegmentTemplate timescale="1" duration="{CHUNK_S}" startNumber="1"'
            ' initialization="$RepresentationID$/init.mp4" media="$RepresentationID$/$Number$.m4s"/>',
            *(
                f'  <Representation id="{each.name}" bandwidth="{each.rate}" width="{each.width}"'
                f' height="{each.height}" frameRate="{FRAMES_PER_S}" codecs="{codecs}"/>'
                for each, codecs in renditions
            ),
            " </AdaptationSet></Period>\n</MPD>\n",
        ]
    )


def playlist(renditions: Sequence[tuple[Rendition, str]], _length_s: float) -> str:
    """Return the multivariant playlist for HLS (RFC 8216, §4.3.4). renditions: with their codecs. Pure."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    for each, codecs in renditions:
        size = f"RESOLUTION={each.width}x{each.height},FRAME-RATE={FRAMES_PER_S}"
        lines += [f'#EXT-X-STREAM-INF:BANDWIDTH={each.rate},{size},CODECS="{codecs}"', f"{each.name}/chunks.m3u8"]
    return "\n".join([*lines, ""])


def chunks(length_s: float) -> str:
    """Return the media playlist of a rendition for HLS (RFC 8216, §4.3.3). Pure."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", f"#EXT-X-TARGETDURATION:{CHUNK_S}", "#EXT-X-PLAYLIST-TYPE:VOD"]
    lines.append('#EXT-X-MAP:URI="init.mp4"')
    for number in range(math.ceil(length_s / CHUNK_S)):
        lines += [f"#EXTINF:{min(CHUNK_S, length_s - number * CHUNK_S):g},", f"{number + 1}.m4s"]
    return "\n".join([*lines, "#EXT-X-ENDLIST", ""])


def codec(init: bytes) -> str:
    """Return the codec in an initialisation segment with H.264, as in ``avc1.640033`` (RFC 6381, §3.3; ISO/IEC
    14496-15, §5.3.3.1). Pure."""
    at = init.index(b"avcC") + 5
    return f"avc1.{init[at : at + 3].hex()}"


def _encode(rendition: Rendition, length_s: float, place: Path, note: Note) -> None:
    """Write the chunks of a rendition into a folder. Raises CellbedError."""
    scene_s = min(_SCENE_S, length_s)
    every, rate = FRAMES_PER_S * CHUNK_S, str(rendition.rate)
    source = f"testsrc2=size={rendition.width}x{rendition.height}:rate={FRAMES_PER_S}:duration={scene_s:g}"
    # Filler gives each chunk the size of its bit rate, even for a simple picture.
    exact = f"nal-hrd=cbr:keyint={every}:min-keyint={every}:scenecut=0"
    rates = ["-b:v", rate, "-minrate", rate, "-maxrate", rate, "-bufsize", str(rendition.rate // 4)]
    codecs = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", *rates, "-x264-params", exact]

    note(f"making the video, {rendition.name}")
    _ffmpeg(["-f", "lavfi", "-i", source, *codecs, "scene.mp4"], place)
    names = ["-init_seg_name", "init.mp4", "-media_seg_name", "$Number$.m4s"]
    again = ["-stream_loop", str(math.ceil(length_s / scene_s) - 1), "-i", "scene.mp4", "-c", "copy"]
    out = ["-t", f"{length_s:g}", "-f", "dash", "-seg_duration", str(CHUNK_S), *names, "all.mpd"]
    _ffmpeg([*again, *out], place)
    for name in ("scene.mp4", "all.mpd"):
        (place / name).unlink()
    _write(place / "chunks.m3u8", chunks(length_s))


def _ffmpeg(arguments: Sequence[str], place: Path) -> None:
    """Run ffmpeg in a folder. Raises CellbedError."""
    command = ["ffmpeg", "-nostdin", "-y", "-loglevel", "error", *arguments]
    done = subprocess.run(
        command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=die_with_parent, check=False
    )
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise CellbedError(f"ffmpeg cannot make the video: {reason[-1] if reason else f'status {done.returncode}'}")
