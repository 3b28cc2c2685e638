//! Real datagrams between nodes, to measure a link before use.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use cellbed_link::{Duration, Time};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::clock::{now, sleep_until, timespec};
use crate::config::Config;
use crate::error::{Error, Result, Trying};
use crate::process::sleep_precisely;
use cellbed_netdev::NetworkNamespace;

/// Maximum wait for late datagrams beyond the duration of the flow.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval of polling the emulator for packets in flight after the last was sent.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// Number of consecutive polls without packets in flight at which the probe ends: a packet may still be in a device
/// queue of the kernel, or between device and receiving socket.
const QUIET_LOOKS: u32 = 4;

/// Requested bytes of receive buffer, so that the receiver loses no packets of a burst.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A stream of equal datagrams at equal intervals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name of the sending vertex.
    pub from: String,
    /// Name of the receiving vertex.
    pub to: String,
    /// IP length of each datagram.
    pub bytes: u32,
    /// Rate in bit/s of IP length.
    pub bit_rate: u64,
    /// Duration of sending, ns.
    pub duration_ns: u64,
    /// IP version, 4 or 6.
    pub family: u8,
}

/// Observations of a flow, by datagram; ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// Times at which datagrams were handed to the kernel.
    pub sent_ns: Vec<u64>,
    /// Times of reception; `None` for lost datagrams.
    pub received_ns: Vec<Option<u64>>,
}

/// A flow with resolved names. Sending begins `phase` after the first flow, so that flows of equal rate alternate.
struct FlowPlan<'a> {
    from: &'a NetworkNamespace,
    to: &'a NetworkNamespace,
    source: IpAddr,
    destination: IpAddr,
    payload: usize,
    interval: Duration,
    phase: Duration,
    count: usize,
    duration: Duration,
}

/// Progress of the flows of a probe.
struct Progress {
    /// Barrier of the senders before the first datagram.
    start: Barrier,
    /// Flows with datagrams to send.
    sending: AtomicUsize,
    /// True if no more datagrams can arrive.
    over: AtomicBool,
}

/// Send all flows at once and wait for their ends. `in_flight` counts the packets in the emulator.
pub fn probe(
    config: &Config,
    namespaces: &[Option<&NetworkNamespace>],
    flows: &[Flow],
    in_flight: impl Fn() -> Result<u64>,
) -> Result<Vec<Observation>> {
    let mut planned = flows
        .iter()
        .map(|flow| plan(config, namespaces, flow))
        .collect::<Result<Vec<_>>>()?;
    let count = planned.len() as u64;
    for (number, flow) in (0..).zip(&mut planned) {
        flow.phase = Duration::from_nanos(flow.interval.as_nanos() * number / count);
    }
    // All sockets are opened before the first datagram leaves: opening takes long enough to delay datagrams.
    let sockets = planned.iter().map(open_pair).collect::<Result<Vec<_>>>()?;
    let progress = Progress {
        start: Barrier::new(planned.len()),
        sending: AtomicUsize::new(planned.len()),
        over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let running: Vec<_> = planned
            .iter()
            .zip(&sockets)
            .map(|(flow, sockets)| scope.spawn(|| run(flow, sockets, &progress)))
            .collect();
        let mut quiet_looks = 0;
        let mut failed = None;
        while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(LOOK);
            if progress.sending.load(Ordering::Acquire) > 0 || failed.is_some() {
                continue;
            }
            match in_flight() {
                Ok(0) => quiet_looks += 1,
                Ok(_) => quiet_looks = 0,
                Err(error) => failed = Some(error),
            }
            if quiet_looks >= QUIET_LOOKS || failed.is_some() {
                progress.over.store(true, Ordering::Release);
            }
        }
        let seen = running
            .into_iter()
            .map(|flow| flow.join().unwrap_or(Err(Error::thread_ended("probe"))))
            .collect();
        failed.map_or(seen, Err)
    })
}

fn plan<'a>(
    config: &Config,
    namespaces: &[Option<&'a NetworkNamespace>],
    flow: &Flow,
) -> Result<FlowPlan<'a>> {
    let wrong = |problem| {
        let (from, to) = (&flow.from, &flow.to);
        Err(Error::input(format!(
            "configuration, probe from {from:?} to {to:?}: {problem}"
        )))
    };
    let end = |name: &str| {
        let index = config.vertex(name)?;
        let mut addresses = config.vertices[index].addresses.iter();
        let address = addresses.find(|it| it.address.is_ipv4() == (flow.family == 4))?;
        Some((namespaces[index]?, address.address))
    };
    let (Some((from, source)), Some((to, destination))) = (end(&flow.from), end(&flow.to)) else {
        return wrong("one of them has no device with an address of this family");
    };
    let headers = if flow.family == 4 { 28 } else { 48 };
    let payload = (flow.bytes as usize).checked_sub(headers);
    let (Some(payload @ 4..=1472), 1..) = (payload, flow.bit_rate) else {
        return wrong("datagrams of this size, or at this rate, cannot be sent");
    };
    let interval = (u64::from(flow.bytes) * 8_000_000_000 / flow.bit_rate).max(1);
    let count = (flow.duration_ns / interval).max(1) as usize;
    Ok(FlowPlan {
        from,
        to,
        source,
        destination,
        payload,
        interval: Duration::from_nanos(interval),
        phase: Duration::ZERO,
        count,
        duration: Duration::from_nanos(flow.duration_ns),
    })
}

/// Open the sockets of a flow's sender and receiver. Also returns the receiver's address.
fn open_pair(flow: &FlowPlan<'_>) -> Result<(UdpSocket, UdpSocket, SocketAddr)> {
    let receiver = flow.to.run(|| open(flow.destination))?;
    let prepared = receiver.set_nonblocking(true);
    let target = prepared.and_then(|()| receiver.local_addr());
    let target = target.trying(|| "prepare a probe's socket".into())?;
    // Exceeds the machine's limit if this user may; otherwise the default remains.
    let _ = sockopt::set_socket_recv_buffer_size(&receiver, RECEIVE_BUFFER);
    let _ = sockopt::set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER);
    Ok((flow.from.run(|| open(flow.source))?, receiver, target))
}

fn run(
    flow: &FlowPlan<'_>,
    (sender, receiver, target): &(UdpSocket, UdpSocket, SocketAddr),
    progress: &Progress,
) -> Result<Observation> {
    let last_sent = OnceLock::new();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            progress.start.wait();
            let sent = send(flow, sender, *target);
            let _ = last_sent.set(now());
            progress.sending.fetch_sub(1, Ordering::Release);
            sent
        });
        let last_sent = || last_sent.get().copied();
        let received_ns = receive(flow, receiver, last_sent, &progress.over);
        let sent_ns = sending
            .join()
            .unwrap_or(Err(Error::thread_ended("probe")))?;
        Ok(Observation {
            sent_ns,
            received_ns: received_ns?,
        })
    })
}

fn open(address: IpAddr) -> Result<UdpSocket> {
    let bound = UdpSocket::bind(SocketAddr::new(address, 0));
    Ok(bound.trying(|| format!("open a probe's socket at {address}"))?)
}

fn send(flow: &FlowPlan<'_>, socket: &UdpSocket, target: SocketAddr) -> Result<Vec<u64>> {
    sleep_precisely();
    let mut datagram = vec![0; flow.payload];
    let begin = now() + flow.phase;
    let mut sent = Vec::with_capacity(flow.count);
    for number in 0..flow.count {
        let due = begin + Duration::from_nanos(flow.interval.as_nanos() * number as u64);
        while now() < due {
            sleep_until(due);
        }
        datagram[..4].copy_from_slice(&(number as u32).to_le_bytes());
        sent.push(now().as_nanos());
        match socket.send_to(&datagram, target) {
            Ok(_) => {}
            // The device queue is full: the datagram is lost like any other.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => Err(error).trying(|| format!("send a probe to {target}"))?,
        }
    }
    Ok(sent)
}

fn receive(
    flow: &FlowPlan<'_>,
    socket: &UdpSocket,
    last_sent: impl Fn() -> Option<Time>,
    over: &AtomicBool,
) -> Result<Vec<Option<u64>>> {
    sleep_precisely();
    let mut received = vec![None; flow.count];
    let mut missing = flow.count;
    let mut datagram = [0; 2048];
    let mut ended = false;
    while missing > 0
        && !ended
        && last_sent().is_none_or(|last| now() < last + flow.duration + PATIENCE)
    {
        // Datagrams that arrived before the end are still read.
        ended = over.load(Ordering::Acquire);
        let timeout = timespec(if last_sent().is_some() {
            5_000_000
        } else {
            20_000_000
        });
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => Err(error).trying(|| "wait for a probe".into())?,
        }
        while let Ok(length) = socket.recv(&mut datagram) {
            let stamp = now().as_nanos();
            let number = datagram[..length]
                .first_chunk::<4>()
                .map(|bytes| u32::from_le_bytes(*bytes) as usize);
            if let Some(entry @ None) = number.and_then(|number| received.get_mut(number)) {
                *entry = Some(stamp);
                missing -= 1;
            }
        }
    }
    Ok(received)
}
