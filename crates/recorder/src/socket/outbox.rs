//! Sending: packets gathered in one buffer, many to a system call.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{c_int, c_void};
use rustix::io::Errno;

use super::Socket;
use crate::error::{Result, Trying};

/// Packets that the kernel cuts of one buffer (`UDP_MAX_SEGMENTS` of Linux before 6.9).
const MOST_SEGMENTS: usize = 64;

/// Bytes of such a buffer: what an IPv4 packet can hold.
const LONGEST_RUN: usize = 65_507;

/// Messages of one system call (`UIO_MAXIOV`).
const MOST_MESSAGES: usize = 1024;

/// Packets that wait to be sent together.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

struct Packet {
    to: SocketAddr,
    end: usize,
}

/// What became of the packets of an [`Outbox`], taken in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sent {
    /// Packets that the kernel took.
    pub taken: usize,
    /// Packets that it refused, as there is no way to the peer at this moment: they are lost.
    pub refused: usize,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet for `to`, whose UDP payload `write` appends to the bytes it is given. If it appends none there is no packet.
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

    /// The packets in order: for whom each is, and its UDP payload.
    pub fn packets(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        (0..self.len()).map(|packet| {
            let bytes = &self.bytes[self.start(packet)..self.packets[packet].end];
            (self.packets[packet].to, bytes)
        })
    }

    /// The UDP payload of all packets together, bytes.
    pub fn payload(&self) -> usize {
        self.bytes.len()
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all packets.
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

    /// How many packets from `first` on the kernel can cut of one buffer: all to one peer and of one length, but for a shorter last one.
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
    /// Sends all packets of `outbox` and empties it, waiting where the kernel's buffer is full. Packets of one train, of one length to one
    /// peer, are handed to the kernel as one piece (`UDP_SEGMENT`), so that nothing comes between them.
    ///
    /// A path that is gone for the moment (no route, interface down) is no error: those packets count as refused. An error speaks of the first
    /// packet that the kernel never takes; all others are sent all the same.
    pub fn send(&self, outbox: &mut Outbox) -> Result<Sent> {
        let mut sent = Sent::default();
        let mut first = 0;
        let mut joined = true;
        let mut failure = None;
        while first < outbox.len() {
            match self.send_from(outbox, first, joined) {
                Ok(count) => {
                    sent.taken += count;
                    first += count;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        let soon = super::now() + cellbed_link::Duration::from_millis(1);
                        self.wait_for_room(soon)?;
                    }
                    Some(libc::EINTR) => {}
                    // Some devices and tunnels cannot take what is to be cut.
                    Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::EMSGSIZE)
                        if joined =>
                    {
                        joined = false;
                    }
                    Some(number) if is_passing(number) => {
                        let count = if joined { outbox.run(first) } else { 1 };
                        sent.refused += count;
                        first += count;
                    }
                    _ => {
                        failure.get_or_insert((error, first));
                        first += 1;
                    }
                },
            }
        }
        let outcome = match failure {
            None => Ok(sent),
            Some((error, packet)) => Err(error).trying_or(
                || format!("send a packet of {} bytes to {}", outbox.length(packet), outbox.packets[packet].to),
                |error| match error.raw_os_error() {
                    Some(libc::EMSGSIZE) => "The interface takes no packets of this length: choose a smaller --packet-bytes, or a larger MTU".into(),
                    _ => String::new(),
                },
            ),
        };
        outbox.clear();
        outcome
    }

    /// Hands packets from `first` on to the kernel and says how many it took.
    fn send_from(&self, outbox: &Outbox, first: usize, joined: bool) -> io::Result<usize> {
        let mut runs = Vec::new();
        let mut next = first;
        while next < outbox.len() && runs.len() < MOST_MESSAGES {
            let count = if joined { outbox.run(next) } else { 1 };
            runs.push((next, count));
            next += count;
        }
        let mut messages = Messages::new(self, outbox, &runs);
        let taken = messages.send(self)?;
        Ok(runs[..taken].iter().map(|(_, count)| count).sum())
    }
}

/// Errors of a path that may be there again in a moment.
fn is_passing(number: c_int) -> bool {
    matches!(
        Errno::from_raw_os_error(number),
        Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::NODEV
            | Errno::NXIO
            | Errno::ADDRNOTAVAIL
            | Errno::CONNREFUSED
            | Errno::PERM // a packet filter
            | Errno::ACCESS
    )
}

/// Control data that tells the kernel where to cut: a `cmsghdr` and a `u16`, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Cut([u8; CUT_SPACE]);

const CUT_SPACE: usize = 24; // CMSG_SPACE(2) of 64-bit Linux; checked below
const CUT_LENGTH: usize = mem::size_of::<libc::cmsghdr>() + mem::size_of::<u16>();

impl Cut {
    fn every(length: u16) -> Self {
        let mut cut = Self([0; CUT_SPACE]);
        let mut fields = Vec::with_capacity(CUT_SPACE);
        fields.extend_from_slice(&CUT_LENGTH.to_ne_bytes());
        fields.extend_from_slice(&libc::SOL_UDP.to_ne_bytes());
        fields.extend_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        fields.extend_from_slice(&length.to_ne_bytes());
        cut.0[..fields.len()].copy_from_slice(&fields);
        cut
    }
}

/// The kernel's view of some runs of an outbox. Its pointers point into the outbox and into its own vectors, which do not change.
struct Messages<'a> {
    headers: Vec<libc::mmsghdr>,
    _addresses: Vec<(libc::sockaddr_storage, libc::socklen_t)>,
    _pieces: Vec<libc::iovec>,
    _cuts: Vec<Cut>,
    _outbox: &'a Outbox,
}

impl<'a> Messages<'a> {
    #[expect(unsafe_code)]
    fn new(socket: &Socket, outbox: &'a Outbox, runs: &[(usize, usize)]) -> Self {
        let mut addresses: Vec<_> = runs
            .iter()
            .map(|(first, _)| raw_address(socket.to_own_family(outbox.packets[*first].to)))
            .collect();
        let mut pieces: Vec<libc::iovec> = runs
            .iter()
            .map(|(first, count)| {
                let bytes =
                    &outbox.bytes[outbox.start(*first)..outbox.packets[first + count - 1].end];
                libc::iovec {
                    iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), // the kernel only reads it
                    iov_len: bytes.len(),
                }
            })
            .collect();
        let mut cuts: Vec<Cut> = runs
            .iter()
            .map(|(first, _)| Cut::every(outbox.length(*first) as u16))
            .collect();
        let headers = (0..runs.len())
            .map(|run| {
                // Sound: all-zero bytes are a valid `mmsghdr`; it has integers and pointers only.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_name = (&raw mut addresses[run].0).cast();
                header.msg_hdr.msg_namelen = addresses[run].1;
                header.msg_hdr.msg_iov = &raw mut pieces[run];
                header.msg_hdr.msg_iovlen = 1;
                if runs[run].1 > 1 {
                    header.msg_hdr.msg_control = (&raw mut cuts[run]).cast();
                    header.msg_hdr.msg_controllen = CUT_SPACE as _;
                }
                header
            })
            .collect();
        Self {
            headers,
            _addresses: addresses,
            _pieces: pieces,
            _cuts: cuts,
            _outbox: outbox,
        }
    }

    /// How many of the runs the kernel took.
    #[expect(unsafe_code)]
    fn send(&mut self, socket: &Socket) -> io::Result<usize> {
        let count = self.headers.len() as libc::c_uint;
        // Sound: the headers' pointers lead to memory that `self` owns or borrows and that is as long as they say.
        let result = unsafe {
            libc::sendmmsg(
                socket.descriptor.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                0,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// An address as the kernel reads it, and its length.
#[expect(unsafe_code)]
fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // Sound: all-zero bytes are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(four) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: four.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(four.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // Sound: the storage is larger than any address and aligned for all.
            unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
            (
                storage,
                mem::size_of::<libc::sockaddr_in>() as libc::socklen_t,
            )
        }
        SocketAddr::V6(six) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: six.port().to_be(),
                sin6_flowinfo: six.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: six.ip().octets(),
                },
                sin6_scope_id: six.scope_id(),
            };
            // Sound: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
            (
                storage,
                mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t,
            )
        }
    }
}

const _: () = assert!(CUT_LENGTH <= CUT_SPACE);
