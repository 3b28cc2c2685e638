//! Batched UDP with the kernel's time stamps: the recorder's only contact with the network, and the only place with
//! unsafe code.
//!
//! A [`Socket`] sends what an [`Outbox`] holds and fills an [`Inbox`], many packets to a system call. It never blocks;
//! who has nothing to do sleeps in [`Socket::wait`] until a deadline or a packet.

mod clock;
mod inbox;
mod interrupt;
mod options;
mod outbox;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cellbed_link::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

pub use clock::{now, sharpen_timers, sleep_until, wall_clock};
pub use inbox::{Datagram, Inbox};
pub use interrupt::Interrupts;
pub use outbox::{Outbox, Sent};

use crate::error::{Result, Trying};

/// Socket buffer size each way. A saturated path at 1 Gbit/s fills that in a tenth of a second; a system that allows
/// ordinary users less (`net.core.rmem_max`) gives what it allows.
const BUFFER: usize = 16 << 20;

/// Local address and device of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Address and port; unspecified and 0 for any. The unspecified IPv6 address listens for IPv4, too.
    pub address: SocketAddr,
    /// The name of the interface of all packets; `None`: as the routes have it.
    pub interface: Option<String>,
}

impl Local {
    /// Any address that can reach `peer`, by `interface` if one is given.
    pub fn towards(peer: SocketAddr, interface: Option<&str>) -> Self {
        let any = match peer {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            address: SocketAddr::new(any, 0),
            interface: interface.map(str::to_owned),
        }
    }
}

/// A UDP socket.
pub struct Socket {
    descriptor: OwnedFd,
    local: SocketAddr,
}

impl Socket {
    /// Opens a socket. Packets are never fragmented: one that is too large for a path is lost, or refused.
    pub fn bind(local: &Local) -> Result<Self> {
        let family = match local.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let descriptor = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
            .trying(|| "open a UDP socket".into())?;
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_v6only(&descriptor, false)
                .trying(|| "let a socket hear IPv4 and IPv6".into())?;
        }
        options::never_fragment(&descriptor, family)?;
        options::stamp_arrivals(&descriptor)?;
        options::count_overflows(&descriptor)?;
        options::enlarge_buffers(&descriptor, BUFFER)?;
        if let Some(interface) = &local.interface {
            options::bind_to_interface(&descriptor, interface)?;
        }
        rustix::net::bind(&descriptor, &local.address).trying_or(
            || format!("use the UDP address {}", local.address),
            |error| match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "Another program has it; choose another port".into()
                }
                std::io::ErrorKind::AddrNotAvailable => {
                    "No interface of this machine has this address".into()
                }
                _ => String::new(),
            },
        )?;
        let local = rustix::net::getsockname(&descriptor)
            .and_then(SocketAddr::try_from)
            .trying(|| "ask for a socket's address".into())?;
        Ok(Self { descriptor, local })
    }

    /// Address and port, the latter chosen by the kernel if none was asked for.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sleeps until `deadline`, or until a packet is there, and returns whether one is. `None` waits for a packet only.
    /// A signal ends the sleep, too.
    pub fn wait(&self, deadline: Option<Time>) -> Result<bool> {
        self.poll(PollFlags::IN, deadline)
    }

    /// Sleeps until `deadline`, or until there is room for packets to be sent, and returns whether there is.
    pub fn wait_for_room(&self, deadline: Time) -> Result<bool> {
        self.poll(PollFlags::OUT, Some(deadline))
    }

    fn poll(&self, flags: PollFlags, deadline: Option<Time>) -> Result<bool> {
        let timeout = deadline.map(|deadline| {
            let nanos = deadline.since(now()).as_nanos();
            Timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as i64,
            }
        });
        match poll(
            &mut [PollFd::new(&self.descriptor, flags)],
            timeout.as_ref(),
        ) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Ok(Err(error).trying(|| "wait for packets".into())?),
        }
    }

    /// The address as this socket's family writes it.
    fn to_own_family(&self, peer: SocketAddr) -> SocketAddr {
        match (self.local, peer) {
            (SocketAddr::V6(_), SocketAddr::V4(four)) => {
                SocketAddr::new(four.ip().to_ipv6_mapped().into(), four.port())
            }
            _ => peer,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests;
