//! Receiving: many packets per system call, each with the kernel's timestamp.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use cellbed_link::Time;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg,
};
use nix::sys::time::TimeSpec;

use super::{Socket, clock, is_temporary};
use crate::error::{Result, Trying};

/// Maximum number of packets per system call.
const BATCH: usize = 64;

/// Maximum bytes of a packet that is not truncated; the recorder's packets fit into an Ethernet frame.
const LONGEST: usize = 2048;

/// The packets of one system call.
pub struct Inbox {
    buffers: Vec<[u8; LONGEST]>,
    /// Sender, time of arrival and length of each packet.
    arrived: Vec<(SocketAddr, Time, usize)>,
    overflows: u64,
    /// The kernel's counter of packets dropped at a full buffer; each packet reports the latest count (`SO_RXQ_OVFL`).
    counter: u32,
}

/// A received packet.
pub struct Datagram<'a> {
    /// Sender; an IPv4-mapped address as IPv4.
    pub from: SocketAddr,
    /// Time of arrival in the kernel, on the monotonic clock.
    pub arrived: Time,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            buffers: vec![[0; LONGEST]; BATCH],
            arrived: Vec::with_capacity(BATCH),
            overflows: 0,
            counter: 0,
        }
    }
}

impl Inbox {
    /// Return the packets of the last [`Socket::receive`], in order of arrival.
    pub fn packets(&self) -> impl Iterator<Item = Datagram<'_>> {
        let packets = self.buffers.iter().zip(&self.arrived);
        packets.map(|(buffer, &(from, arrived, length))| Datagram {
            from,
            arrived,
            bytes: &buffer[..length],
        })
    }

    /// Return the number of packets dropped by this machine at a full socket buffer since the last call. Use each inbox
    /// with only one socket.
    pub fn take_overflows(&mut self) -> u64 {
        std::mem::take(&mut self.overflows)
    }
}

impl Socket {
    /// Receive at most 64 waiting packets; return their number. Packets over 2048 bytes are truncated.
    pub fn receive(&self, inbox: &mut Inbox) -> Result<usize> {
        inbox.arrived.clear();
        // Not reused: the kernel shrinks the space for control messages to the last messages' size.
        let space = cmsg_space!(TimeSpec, u32);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(space));
        let buffers = inbox.buffers.iter_mut();
        let mut pieces: Vec<_> = buffers.map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let messages = match recvmmsg(
            self.descriptor.as_raw_fd(),
            &mut headers,
            pieces.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        ) {
            Ok(messages) => messages,
            // An ICMP error about a sent packet: that packet's loss is noticed anyway.
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            Err(error) if is_temporary(error) => return Ok(0),
            Err(error) => return Ok(Err(error).trying(|| "receive packets".into())?),
        };
        let instant = clock::Instant::now();
        for message in messages {
            let mut at = None;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(stamp) => {
                        let seconds = stamp.tv_sec() as u64;
                        let stamp = seconds * 1_000_000_000 + stamp.tv_nsec() as u64;
                        at = Some(instant.of_stamp(Time::from_nanos(stamp)));
                    }
                    ControlMessageOwned::RxqOvfl(count) => {
                        inbox.overflows += u64::from(count.wrapping_sub(inbox.counter));
                        inbox.counter = count;
                    }
                    _ => {}
                }
            }
            let length = message.bytes.min(LONGEST);
            let at = at.unwrap_or_else(clock::now);
            inbox.arrived.push((sender(&message), at, length));
        }
        Ok(inbox.arrived.len())
    }
}

/// Return the sender of a packet; an IPv4-mapped address as IPv4.
fn sender(message: &RecvMsg<'_, '_, SockaddrStorage>) -> SocketAddr {
    let address = message.address.as_ref();
    if let Some(six) = address.and_then(SockaddrStorage::as_sockaddr_in6) {
        return match IpAddr::V6(six.ip()).to_canonical() {
            IpAddr::V4(four) => SocketAddr::new(four.into(), six.port()),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, six.port(), 0, six.scope_id()).into(),
        };
    }
    let four = address.and_then(SockaddrStorage::as_sockaddr_in);
    four.map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |four| {
        (four.ip(), four.port()).into()
    })
}
