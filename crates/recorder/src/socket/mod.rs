//! Batched UDP with the kernel's time stamps, and TCP: the recorder's only contact with the network, and the only place
//! with unsafe code.
//!
//! A [`Socket`] sends the packets of an [`Outbox`] and fills an [`Inbox`], many packets per system call. No socket ever
//! blocks; idle callers sleep in [`wait`] until a deadline or until a socket is ready.

mod clock;
mod inbox;
mod interrupt;
mod outbox;
mod stream;

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cellbed_link::Time;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt as more};
use rustix::event::{PollFd, poll};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub use clock::{now, sharpen_timers, sleep_until, wall_clock};
pub use inbox::{Datagram, Inbox};
pub use interrupt::Interrupts;
pub use outbox::Outbox;
pub use rustix::event::PollFlags;
pub use stream::{Flow, Listener, Stream};

use crate::error::{Result, Trying};

/// Socket buffer size in each direction, bytes. Saturation at 1 Gbit/s fills it in a tenth of a second. A system with a
/// lower limit for users (`net.core.rmem_max`) gives less.
const BUFFER: usize = 16 << 20;

/// Local address and device of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Address and port; unspecified and 0 for any. The unspecified IPv6 address also receives IPv4.
    pub address: SocketAddr,
    /// Interface of all packets; `None`: by the routing table.
    pub interface: Option<String>,
}

impl Local {
    /// Any address that can reach `peer`, over `interface` if given.
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
    /// Open a socket. Packets are never fragmented: packets too large for a path are lost or refused.
    pub fn bind(local: &Local) -> Result<Self> {
        let descriptor = open(local.address, SocketType::DGRAM)?;
        // Ignores reports of the path's MTU: a packet leaves whole or not at all.
        let no_fragments = || "forbid fragments".into();
        sockopt::set_ip_mtu_discover(&descriptor, Ipv4PathMtuDiscovery::PROBE)
            .trying(no_fragments)?;
        if local.address.is_ipv6() {
            sockopt::set_ipv6_mtu_discover(&descriptor, Ipv6PathMtuDiscovery::PROBE)
                .trying(no_fragments)?;
        }
        setsockopt(&descriptor, more::ReceiveTimestampns, &true)
            .trying(|| "have the kernel stamp packets".into())?;
        setsockopt(&descriptor, more::RxqOvfl, &1)
            .trying(|| "have the kernel count what its buffer drops".into())?;
        enlarge_buffers(&descriptor)?;
        if let Some(interface) = &local.interface {
            bind_to_interface(&descriptor, interface)?;
        }
        rustix::net::bind(&descriptor, &local.address)
            .trying_or(|| format!("use the UDP address {}", local.address), in_use)?;
        let local = rustix::net::getsockname(&descriptor)
            .and_then(SocketAddr::try_from)
            .trying(|| "ask for a socket's address".into())?;
        Ok(Self { descriptor, local })
    }

    /// Return address and port. The kernel chooses the port if 0 was requested.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Convert an address to this socket's family.
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

/// Open a socket for the family of an address, which never blocks; one for IPv6 also hears IPv4.
fn open(address: SocketAddr, kind: SocketType) -> Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor =
        rustix::net::socket_with(family, kind, flags, None).trying(|| "open a socket".into())?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&descriptor, false)
            .trying(|| "let a socket hear IPv4 and IPv6".into())?;
    }
    Ok(descriptor)
}

/// Sleep until `deadline`, a signal, or until a socket is ready. Return what each socket is ready for.
pub fn wait(sockets: &[(BorrowedFd<'_>, PollFlags)], deadline: Time) -> Result<Vec<PollFlags>> {
    let timeout = clock::timespec(deadline.since(now()).as_nanos());
    let polled = sockets.iter();
    let mut polled: Vec<_> = polled
        .map(|(socket, flags)| PollFd::from_borrowed_fd(*socket, *flags))
        .collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => Ok(polled.iter().map(PollFd::revents).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![PollFlags::empty(); sockets.len()]),
        Err(error) => Ok(Err(error).trying(|| "wait for packets".into())?),
    }
}

/// Return the remedy for an address that cannot be used.
fn in_use(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "Another program has it; choose another port".into(),
        std::io::ErrorKind::AddrNotAvailable => {
            "No interface of this machine has this address".into()
        }
        _ => String::new(),
    }
}

/// Set a socket's buffers to [`BUFFER`] bytes, beyond the system's limit if permitted, otherwise up to the limit.
fn enlarge_buffers(socket: &OwnedFd) -> Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, BUFFER)
        .or_else(|error| {
            tracing::info!("the receive buffer is limited by net.core.rmem_max: {error}");
            sockopt::set_socket_recv_buffer_size(socket, BUFFER)
        })
        .trying(|| "enlarge a socket's receive buffer".into())?;
    setsockopt(socket, more::SndBufForce, &BUFFER)
        .or_else(|error| {
            tracing::info!("the send buffer is limited by net.core.wmem_max: {error}");
            setsockopt(socket, more::SndBuf, &BUFFER)
        })
        .trying(|| "enlarge a socket's send buffer".into())?;
    Ok(())
}

/// Bind the socket to an interface: all its packets use that interface, independently of the routes.
fn bind_to_interface(socket: &OwnedFd, interface: &str) -> Result<()> {
    let bound = setsockopt(socket, more::BindToDevice, &OsString::from(interface)).trying_or(
        || format!("bind to the interface {interface:?}"),
        |error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::EINVAL) => {
                format!("There is no such interface; there are: {}", interfaces())
            }
            Some(libc::EPERM) => "Linux before 5.7 allows it to root only: run it as root, or \
                                  `setcap cap_net_raw+ep` the program"
                .into(),
            _ => String::new(),
        },
    );
    Ok(bound?)
}

fn interfaces() -> String {
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names.join(", ")
}

/// Return whether a path's error may be temporary.
fn is_temporary(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
            | Errno::ENODEV
            | Errno::ENXIO
            | Errno::EADDRNOTAVAIL
            | Errno::ECONNREFUSED
            | Errno::EPERM // a packet filter
            | Errno::EACCES
    )
}

#[cfg(test)]
mod tests;
