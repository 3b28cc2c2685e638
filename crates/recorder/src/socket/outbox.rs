//! Sending: packets are gathered in one buffer; a system call sends all of one train.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

use super::{PollFlags, Socket, is_temporary, wait};
use crate::error::{Error, Result, Trying};

/// Maximum packets that the kernel segments from one buffer (`UDP_MAX_SEGMENTS` of Linux before 6.9).
const MOST_SEGMENTS: usize = 64;

/// Maximum bytes of such a buffer: the UDP payload of an IPv4 packet.
const LONGEST_RUN: usize = 65_507;

/// Packets to be sent together.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

struct Packet {
    to: SocketAddr,
    end: usize,
}

impl Outbox {
    /// Add a packet for `to`. `write` appends the UDP payload to the given bytes; without payload, no packet is added.
    pub fn push(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        if self.bytes.len() > start {
            self.packets.push(Packet {
                to,
                end: self.bytes.len(),
            });
        }
    }

    /// Return the packets in order: destination and UDP payload.
    pub fn packets(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        (0..self.len()).map(|packet| {
            let bytes = &self.bytes[self.start(packet)..self.packets[packet].end];
            (self.packets[packet].to, bytes)
        })
    }

    /// Return the bytes of UDP payload of all packets.
    pub fn payload(&self) -> usize {
        self.bytes.len()
    }

    /// Return the number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Return whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Remove all packets.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }

    fn start(&self, packet: usize) -> usize {
        packet
            .checked_sub(1)
            .map_or(0, |before| self.packets[before].end)
    }

    fn length(&self, packet: usize) -> usize {
        self.packets[packet].end - self.start(packet)
    }

    /// Return the number of packets from `first` on that the kernel can segment from one buffer: same peer, same length
    /// except for a shorter last packet.
    fn run(&self, first: usize) -> usize {
        let (to, length) = (self.packets[first].to, self.length(first));
        let mut bytes = length;
        let mut count = 1;
        while count < MOST_SEGMENTS && first + count < self.packets.len() {
            let next = self.length(first + count);
            bytes += next;
            if self.packets[first + count].to != to || next > length || bytes > LONGEST_RUN {
                break;
            }
            count += 1;
            if next < length {
                break;
            }
        }
        count
    }
}

impl Socket {
    /// Send all packets of `outbox` and empty it, waiting if the kernel's buffer is full. Packets of equal length to
    /// one peer, such as a train, are passed to the kernel as one piece (`UDP_SEGMENT`): no packet comes between them.
    ///
    /// A temporary loss of the path (no route, interface down) is no error: the packets are lost, and their number is
    /// returned. An error names the first packet that the kernel always refuses; all others are still sent.
    pub fn send(&self, outbox: &mut Outbox) -> Result<usize> {
        let mut refused = 0;
        let mut first = 0;
        let mut joined = true;
        let mut failure = None;
        while first < outbox.len() {
            let count = if joined { outbox.run(first) } else { 1 };
            match self.send_run(outbox, first, count) {
                Ok(()) => first += count,
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    let soon = super::now() + cellbed_link::Duration::from_millis(1);
                    wait(&[(self.as_fd(), PollFlags::OUT)], soon)?;
                }
                Err(Errno::EINTR) => {}
                // Some devices and tunnels cannot send packets segmented by the kernel.
                Err(Errno::EIO | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EMSGSIZE)
                    if count > 1 =>
                {
                    joined = false;
                }
                Err(error) if is_temporary(error) => {
                    refused += count;
                    first += count;
                }
                Err(error) => {
                    failure.get_or_insert((error, first));
                    first += 1;
                }
            }
        }
        let outcome = match failure {
            None => Ok(refused),
            Some((error, packet)) => Err(error).trying_or(
                || format!("send a packet of {} bytes to {}", outbox.length(packet), outbox.packets[packet].to),
                |_| match error {
                    Errno::EMSGSIZE => "The interface takes no packets of this length: choose a smaller --packet-bytes, or a larger MTU".into(),
                    _ => String::new(),
                },
            ).map_err(Error::from),
        };
        outbox.clear();
        outcome
    }

    /// Pass `count` packets from `first` on to the kernel, which segments them from one buffer.
    fn send_run(&self, outbox: &Outbox, first: usize, count: usize) -> nix::Result<()> {
        let bytes = &outbox.bytes[outbox.start(first)..outbox.packets[first + count - 1].end];
        let length = outbox.length(first) as u16;
        let cut = [ControlMessage::UdpGsoSegments(&length)];
        let to = SockaddrStorage::from(self.to_own_family(outbox.packets[first].to));
        let sent = sendmsg(
            self.descriptor.as_raw_fd(),
            &[IoSlice::new(bytes)],
            if count > 1 { &cut } else { &[] },
            MsgFlags::empty(),
            Some(&to),
        );
        sent.map(drop)
    }
}
