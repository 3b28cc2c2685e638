//! TCP: connections that never block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cellbed_link::Duration;
use rustix::net::SocketType;
use rustix::net::sockopt;

use super::{Local, PollFlags, bind_to_interface, in_use, open};
use crate::error::{Result, Trying};

/// Maximum bytes read at once.
const READ: usize = 1 << 14;

/// Maximum connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// A TCP connection.
pub struct Stream {
    stream: TcpStream,
    /// True until the handshake of TCP is over.
    connecting: bool,
}

/// State of a [`Stream`] after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All is done for now.
    Idle,
    /// Bytes were read, and there may be more.
    More,
    /// Closed by the peer, or broken.
    Ended,
}

impl Stream {
    /// Begin to connect to `peer`. Errors: no such interface, no route.
    pub fn connect(peer: SocketAddr, interface: Option<&str>) -> Result<Self> {
        let descriptor = Self::open(peer, interface)?;
        match rustix::net::connect(&descriptor, &peer) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => Err(error).trying(|| format!("connect to {peer}"))?,
        }
        Ok(Self::new(descriptor.into(), true))
    }

    /// Open a socket. Errors: no such interface.
    pub fn open(towards: SocketAddr, interface: Option<&str>) -> Result<OwnedFd> {
        let descriptor = open(towards, SocketType::STREAM)?;
        if let Some(interface) = interface {
            bind_to_interface(&descriptor, interface)?;
        }
        Ok(descriptor)
    }

    fn new(stream: TcpStream, connecting: bool) -> Self {
        let _ = stream.set_nodelay(true); // otherwise messages are late
        Self { stream, connecting }
    }

    /// End the connection if the peer acknowledges nothing for so long, also while connecting (RFC 5482).
    pub fn end_after(&self, span: Duration) {
        let millis = u32::try_from(span.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(&self.stream, millis); // else it lasts as long as the kernel likes
    }

    /// Return whether the handshake of TCP is not over.
    pub fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// Return the events of interest.
    pub fn interest(&self, reads: bool, writes: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads);
        flags.set(PollFlags::OUT, writes);
        flags
    }

    /// Finish the handshake of TCP, when the stream has become writable. Return whether the connection is usable.
    pub fn finish_connecting(&mut self) -> bool {
        self.connecting = false;
        matches!(self.stream.take_error(), Ok(None))
    }

    /// Append received bytes to `input`, at most 16 KiB.
    pub fn read(&mut self, input: &mut Vec<u8>) -> Flow {
        let start = input.len();
        input.resize(start + READ, 0);
        let result = self.stream.read(&mut input[start..]);
        // An acknowledgement some ms later would wake a device that fell asleep.
        let _ = sockopt::set_tcp_quickack(&self.stream, true);
        input.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Flow::Ended,
            Ok(_) => Flow::More,
            Err(error) => flow(&error),
        }
    }

    /// Write bytes of `output`, as many as there is room for, and remove them.
    pub fn write(&mut self, output: &mut Vec<u8>) -> Flow {
        while !output.is_empty() {
            match self.stream.write(output) {
                Ok(count) => drop(output.drain(..count)),
                Err(error) => return flow(&error),
            }
        }
        Flow::Idle
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn flow(error: &io::Error) -> Flow {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Flow::Idle,
        _ => Flow::Ended,
    }
}

/// A TCP socket that accepts connections.
pub struct Listener(TcpListener);

impl Listener {
    /// Listen on an address.
    pub fn bind(local: &Local) -> Result<Self> {
        let descriptor = Stream::open(local.address, local.interface.as_deref())?;
        let _ = sockopt::set_socket_reuseaddr(&descriptor, true); // else a restart waits for old connections
        rustix::net::bind(&descriptor, &local.address)
            .trying_or(|| format!("use the TCP address {}", local.address), in_use)?;
        rustix::net::listen(&descriptor, BACKLOG).trying(|| "listen for TCP connections".into())?;
        Ok(Self(descriptor.into()))
    }

    /// Accept a connection: `None` if none waits, or if this machine has no room for it.
    pub fn accept(&self) -> Option<(Stream, SocketAddr)> {
        let (stream, from) = self.0.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        let address = SocketAddr::new(from.ip().to_canonical(), from.port());
        Some((Stream::new(stream, false), address))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
