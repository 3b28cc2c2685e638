//! Receiving: many packets to a system call, each with the kernel's stamp.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use cellbed_link::Time;

use super::{Socket, clock};
use crate::error::{Result, Trying};

/// Packets of one system call.
const BATCH: usize = 64;

/// The longest packet taken whole; nothing of the recorder is longer than an Ethernet frame.
const LONGEST: usize = 2048;

/// Room for a stamp and a count, with their headers.
const CONTROL: usize = 128;

/// Packets that have arrived together.
pub struct Inbox {
    slots: Vec<Slot>,
    arrived: Vec<Arrived>,
    overflows: Overflows,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Room for a `sockaddr_in` or `sockaddr_in6`.
#[repr(C, align(8))]
struct Address([u8; 28]);

struct Slot {
    bytes: [u8; LONGEST],
    address: Address,
    control: Control,
}

struct Arrived {
    from: SocketAddr,
    length: usize,
    at: Time,
}

/// A packet that has arrived.
pub struct Datagram<'a> {
    /// The sender; IPv4 addresses as such, for any family of the socket.
    pub from: SocketAddr,
    /// When the kernel had it, on the monotonic clock.
    pub arrived: Time,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// The kernel counts overflows in 32 bits and reports them with the next packet.
#[derive(Default)]
struct Overflows {
    last: u32,
    total: u64,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbox {
    /// An empty one.
    pub fn new() -> Self {
        let slot = |_| Slot {
            bytes: [0; LONGEST],
            address: Address([0; 28]),
            control: Control([0; CONTROL]),
        };
        Self {
            slots: (0..BATCH).map(slot).collect(),
            arrived: Vec::with_capacity(BATCH),
            overflows: Overflows::default(),
        }
    }

    /// The packets of the last [`Socket::receive`], in order of arrival.
    pub fn packets(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.slots
            .iter()
            .zip(&self.arrived)
            .map(|(slot, arrived)| Datagram {
                from: arrived.from,
                arrived: arrived.at,
                bytes: &slot.bytes[..arrived.length],
            })
    }

    /// Return the number of packets so far that found the socket's buffer full: this machine lost them, not the
    /// network. Use each inbox with one socket.
    pub fn overflows(&self) -> u64 {
        self.overflows.total
    }
}

impl Socket {
    /// Takes what has arrived, at most 64 packets, and returns how many. Packets over 2048 bytes come truncated.
    #[expect(unsafe_code)]
    pub fn receive(&self, inbox: &mut Inbox) -> Result<usize> {
        inbox.arrived.clear();
        let mut pieces: [libc::iovec; BATCH] = std::array::from_fn(|slot| libc::iovec {
            iov_base: inbox.slots[slot].bytes.as_mut_ptr().cast(),
            iov_len: LONGEST,
        });
        let mut headers: [libc::mmsghdr; BATCH] = std::array::from_fn(|index| {
            let slot = &mut inbox.slots[index];
            // SAFETY: all-zero bytes are a valid `mmsghdr`; it has integers and pointers only.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = (&raw mut slot.address).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<Address>() as _;
            header.msg_hdr.msg_iov = &raw mut pieces[index];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (&raw mut slot.control).cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
            header
        });
        // SAFETY: the headers' pointers lead to the slots, which nothing else touches during the call and which have the stated lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.descriptor.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                // An ICMP error that our packet caused adds nothing to its loss.
                error if is_passing(&error) => return Ok(0),
                error => return Err(error).trying(|| "receive packets".into()),
            },
        };
        let instant = clock::Instant::now();
        for (header, slot) in headers[..count].iter().zip(&inbox.slots) {
            let controls = ControlData::read(slot, header.msg_hdr.msg_controllen);
            if let Some(overflows) = controls.overflows {
                inbox.overflows.update(overflows);
            }
            inbox.arrived.push(Arrived {
                from: slot.address.read(),
                length: (header.msg_len as usize).min(LONGEST),
                at: controls
                    .stamp
                    .map_or_else(clock::now, |stamp| instant.of_stamp(stamp)),
            });
        }
        Ok(count)
    }
}

impl Overflows {
    fn update(&mut self, count: u32) {
        self.total += u64::from(count.wrapping_sub(self.last));
        self.last = count;
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EAGAIN
                | libc::EINTR
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
        )
    )
}

/// The kernel's control messages of a packet.
#[derive(Default)]
struct ControlData {
    stamp: Option<Time>,
    overflows: Option<u32>,
}

impl ControlData {
    /// Goes through the control messages by hand: a header of length, level and type, the data, and padding to eight bytes.
    fn read(slot: &Slot, length: usize) -> Self {
        const HEADER: usize = mem::size_of::<libc::cmsghdr>();
        let mut found = Self::default();
        let mut rest = &slot.control.0[..length.min(CONTROL)];
        while rest.len() >= HEADER {
            let (header, _) = rest.split_at(HEADER);
            let size = usize::from_ne_bytes(array(&header[..mem::size_of::<usize>()]));
            let level = i32::from_ne_bytes(array(&header[HEADER - 8..HEADER - 4]));
            let kind = i32::from_ne_bytes(array(&header[HEADER - 4..]));
            if size < HEADER || size > rest.len() {
                break;
            }
            let data = &rest[HEADER..size];
            match (level, kind, data.len()) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, 16..) => {
                    let seconds = i64::from_ne_bytes(array(&data[..8]));
                    let nanos = i64::from_ne_bytes(array(&data[8..16]));
                    found.stamp = Some(Time::from_nanos(
                        seconds as u64 * 1_000_000_000 + nanos as u64,
                    ));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 4..) => {
                    found.overflows = Some(u32::from_ne_bytes(array(&data[..4])));
                }
                _ => {}
            }
            let next = size.next_multiple_of(mem::size_of::<usize>());
            rest = rest.get(next..).unwrap_or_default();
        }
        found
    }
}

/// Exactly `N` bytes; the caller has counted them.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

impl Address {
    /// Reads what the kernel wrote: family, port, then the IPv4 address, or flow, IPv6 address and scope.
    fn read(&self) -> SocketAddr {
        let bytes = &self.0;
        let family = u16::from_ne_bytes(array(&bytes[..2]));
        let port = u16::from_be_bytes(array(&bytes[2..4]));
        if i32::from(family) != libc::AF_INET6 {
            return SocketAddr::new(Ipv4Addr::from(array::<4>(&bytes[4..8])).into(), port);
        }
        let ip = Ipv6Addr::from(array::<16>(&bytes[8..24]));
        match IpAddr::V6(ip).to_canonical() {
            IpAddr::V4(four) => SocketAddr::new(four.into(), port),
            IpAddr::V6(six) => {
                let scope = u32::from_ne_bytes(array(&bytes[24..]));
                SocketAddrV6::new(six, port, 0, scope).into()
            }
        }
    }
}
