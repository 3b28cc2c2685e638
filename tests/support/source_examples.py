"""Small files in the layouts that the publishers of data sets document."""

import io
import tarfile
import zipfile
from collections.abc import Mapping

Files = dict[str, bytes]


def zipped(files: Mapping[str, bytes | str]) -> bytes:
    """A zip archive of files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def tarred(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz archive of files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def lines(*rows: object) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def mahimahi() -> Files:
    """12 Mbit/s up for 100 ms and 24 Mbit/s down for 50 ms, of two recordings; one has only a downlink."""
    up, down = lines(*range(1, 101)), lines(*(at for at in range(1, 51) for _ in range(2)))
    return {
        "ATT-LTE-driving-2016.up": up,
        "ATT-LTE-driving-2016.down": down,
        "TMobile-UMTS-driving.down": down,
        "README": b"These trace files\n",
    }


def cellreplay() -> bytes:
    """One recording of two: light rows each 50 ms, heavy opportunities of 1400 bytes each ms."""
    light = lines(*(f"{at} 20 0 1 2" for at in range(0, 1000, 50)))
    offsets = lines(*(f"{size} {7 - size // 200}" for size in range(100, 1500, 100)))
    heavy = lines(*range(0, 1001))
    files = {f"{way}-delay-light-pdo": light for way in ("up", "down")}
    files |= {f"{way}-heavy-pdo": heavy for way in ("up", "down")}
    files |= {f"latency-offset-{way}": offsets for way in ("up", "down")}
    return zipped({f"tmobile/driving/{name}": content for name, content in files.items()})


_CORK = ",".join((
    *("Timestamp", "Longitude", "Latitude", "Speed", "Operatorname", "CellID", "NetworkMode"),
    *("RSRP", "RSRQ", "SNR", "CQI", "RSSI", "DL_bitrate", "UL_bitrate", "State"),
))  # fmt: skip


def cork_4g() -> bytes:
    def log(kbit_s: int) -> bytes:
        rows = (
            f"2018.02.05_13.35.{50 + at},-8.49,51.89,20,A,12,LTE,-95,-12,5.0,9,-80,{kbit_s},90,D" for at in range(10)
        )
        return lines(_CORK, *rows)

    return zipped(
        {
            "Dataset/bus/A_2018.02.05_13.35.50.csv": log(20_000),
            "Dataset/pedestrian/B_2018.01.17_15.56.48.csv": log(5_000),
            "Dataset/static/B_2018.01.18_15.56.48.csv": lines(_CORK, "yesterday,,,,,,,,,,,,,,"),
        }
    )


def cork_5g() -> bytes:
    header = _CORK + ",PINGAVG,PINGMIN,PINGMAX,PINGSTDEV,PINGLOSS,CELLHEX,NODEHEX,LACHEX,RAWCELLID,NRxRSRP,NRxRSRQ"

    def row(stamp: str, mode: str, kbit_s: int, ping: object) -> str:
        radio = "-99,-15,6.0,12,-90"
        cell = "C,A81B,9CBA,11016972,-100.0,-15.0"
        return f"{stamp},-8.39,51.93,0,B,12,{mode},{radio},{kbit_s},1,D,{ping},-,-,-,-,{cell}"

    # A second with two rows, one that is left out, a clock that is set back.
    rows = [
        row("2019.12.14_10.16.30", "5G", 100_000, "-"),
        row("2019.12.14_10.16.31", "5G", 200_000, 40),
        row("2019.12.14_10.16.31", "5G", 100_000, "-"),
        row("2019.12.14_10.16.33", "LTE", 50_000, 74.5),
        row("2019.12.14_10.16.32", "LTE", 30_000, "-"),
    ]
    content = lines(header, *rows)
    return zipped(
        {
            "5G-production-dataset/Download/Driving/B_2019.12.14_10.16.30.csv": content,
            "__MACOSX/5G-production-dataset/Download/Driving/._B_2019.12.14_10.16.30.csv": b"\0\5\26\7",
            "5G-production-dataset/Netflix/Static/animated-RickandMorty/B_2019.12.14_10.16.30.csv": content,
        }
    )


def nyc_2018() -> Files:
    """12 Mbit/s down for 100 ms, of one also up; a file without a line."""
    return {
        "downlink-4g-no-cross-times": lines(*range(100), 100),
        "uplink-4g-no-cross-times": lines(*range(0, 100, 4)),
        "downlink-3g-with-cross-subway.pps": lines(*range(0, 50, 2)),
        "uplink-3g-no-cross-times-1": b"",
        "wired48": lines(*range(10)),
        "README.md": b"# Cellular Traces\n",
    }


def nyc_2019() -> Files:
    trace = lines(0, 0, *range(1, 100))
    names = ("trace-3457194-timessquare", "trace-3199718-timessquare", "trace-2767958-taxi1", "trace-info", "wired48")
    return dict.fromkeys(names, trace)


def in_the_wild() -> Files:
    """A second that is there twice, and one that is not; one file has a word in it."""
    return {
        "5g_trace_100_walking": b"1.0\t91.0\n2.0\t100.0\n2.0\t200.0\n4.0\t0.0\n",
        "4g_trace_driving_50015_dr": b"0.0\t12.0\n1.0\t24.0\n",
        "4g_trace_walking_60048_c": b"0.0\t12.0\nnothing\n",
        "README.md": b"# Adaptive Video Streaming\n",
    }
