"""The parts of a request, in the order in which it spends its time.

Each part is the difference of two stamps, the emulator's own account of a packet, or the kernel's of a connection;
``docs/explanation/measurement.md`` describes them one by one.
"""

from dataclasses import dataclass
from typing import Literal

Place = Literal["endpoint", "uplink", "remote", "downlink"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a request's latency.

    name: its column in ``requests.parquet`` is ``part_<name>``, in seconds.
    place: where the time passes.
    label: what a reader calls it; short: the same where there is little room; meaning: from what to what.
    """

    name: str
    place: Place
    label: str
    short: str
    meaning: str

    @property
    def column(self) -> str:
        return f"part_{self.name}"


PARTS: tuple[Part, ...] = (
    Part("generator", "endpoint", "Generator", "generator", "intended time → pre-processing begins"),
    Part("preprocessing", "endpoint", "Pre-processing", "pre-process", "pre-processing begins → publish called"),
    Part("endpoint_stack", "endpoint", "Endpoint stack", "stack", "publish called → TCP takes the first byte"),
    Part(
        "uplink_wait",
        "uplink",
        "Waiting to send",
        "waiting",
        "TCP's send buffer or congestion window is full of earlier bytes, which the uplink has not carried",
    ),
    Part("uplink_transport", "uplink", "Transport", "transport", "first byte → completing packet enters the uplink"),
    Part("uplink_queue", "uplink", "Queue and service", "queue", "completing packet in the bottleneck queues"),
    Part("uplink_delay", "uplink", "Base and core delay", "delay", "completing packet in the delay stages"),
    Part("receive_window", "remote", "Receive window", "window", "the receiver's window is full: TCP may not send"),
    Part("remote_stack", "remote", "Remote stack", "stack", "request left the network → received by the service"),
    Part("server_queue", "remote", "Server queue", "queue", "received → taken by a worker"),
    Part("decode", "remote", "Decoding", "decode", "taken by a worker → inference begins"),
    Part("inference", "remote", "Inference", "inference", "inference begins → ends"),
    Part("remote_reply", "remote", "Reply", "reply", "inference ends → first byte of the reply enters the downlink"),
    Part("downlink_transport", "downlink", "Transport", "transport", "first byte → completing packet of the reply"),
    Part("downlink_queue", "downlink", "Queue and service", "queue", "completing packet in the bottleneck queues"),
    Part("downlink_delay", "downlink", "Base and core delay", "delay", "completing packet in the delay stages"),
    Part("endpoint_receive", "endpoint", "Endpoint receive", "receive", "reply left the network → seen by the client"),
)

PLACES: tuple[Place, ...] = ("endpoint", "uplink", "remote", "downlink")
