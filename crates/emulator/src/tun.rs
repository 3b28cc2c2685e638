//! A TUN device: the kernel's IP packets as reads and writes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::{Result, Trying};

/// One TUN device, one IP packet per read and per write. The device is removed with the value, or with its namespace
/// after [`Tun::end_with_namespace`].
///
/// The device exchanges super-packets, each with a [`Vnet`](crate::offload::Vnet) header before it.
pub struct Tun {
    descriptor: OwnedFd,
    name: String,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet of this many bytes, device header included.
    Packet(usize),
    /// No packet waits.
    Nothing,
    /// The interface was deleted, for example by a program with the capabilities of its node.
    Gone,
}

impl Tun {
    /// Create a device `name` in the calling thread's network namespace; `%d` in `name` becomes a free number.
    pub fn create(name: &str) -> Result<Self> {
        let (descriptor, name) = cellbed_netdev::create_tun(name, true)?;
        Ok(Self { descriptor, name })
    }

    /// Leave the removal of the device to the end of its namespace: faster for many devices.
    pub fn end_with_namespace(&self) -> Result<()> {
        Ok(cellbed_netdev::end_with_namespace(&self.descriptor)?)
    }

    /// Attaches to another program's device, with super-packets.
    pub fn attach(descriptor: OwnedFd, name: &str) -> Self {
        let name = name.into();
        Self { descriptor, name }
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Read the next packet into the consecutive parts of `space`.
    pub fn receive(&self, space: [&mut [u8]; 2]) -> Result<Received> {
        let mut space = space.map(IoSliceMut::new);
        match rustix::io::readv(&self.descriptor, &mut space) {
            Ok(length) => Ok(Received::Packet(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(Errno::BADFD | Errno::FAULT | Errno::IO) => Ok(Received::Gone),
            Err(error) => Ok(Err(error).trying(|| format!("read from interface {}", self.name))?),
        }
    }

    /// Pass a packet to the namespace's kernel; `parts` begin with the device header. Return `false` if the kernel
    /// refuses the packet.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> bool {
        match parts {
            [whole] => rustix::io::write(&self.descriptor, whole),
            _ => rustix::io::writev(&self.descriptor, parts),
        }
        .is_ok()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
