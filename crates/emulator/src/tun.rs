//! A TUN device: the kernel's IP packets as reads and writes.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};

use crate::error::{Result, Trying};

const DEVICE: &str = "/dev/net/tun";

/// One TUN device, one IP packet per read and per write. It goes away when the value is dropped.
pub struct Tun {
    descriptor: OwnedFd,
    name: String,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet of this many bytes.
    Packet(usize),
    /// No packet waits.
    Nothing,
    /// The interface was deleted, which a program with the capabilities of its node may do.
    Gone,
}

impl Tun {
    /// Creates a device called `name` in the network namespace of the calling thread; `%d` in it becomes a free number.
    pub fn create(name: &str) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(DEVICE, flags, Mode::empty())
            .trying_or(|| format!("open {DEVICE}"), device_remedy)?;

        // SAFETY: the all-zero value is valid for this plain C structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1]
            .iter_mut()
            .zip(name.bytes())
        {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call, on a descriptor of the TUN driver.
        unsafe { ioctl(&descriptor, Updater::<{ libc::TUNSETIFF as _ }, libc::ifreq>::new(&mut request)) }.trying_or(
            || format!("create the network interface {name}"),
            |error| match error.raw_os_error() {
                Some(libc::EPERM) => {
                    "This user may not create interfaces in that network namespace: run as root, for instance with `sudo`"
                        .into()
                }
                _ => String::new(),
            },
        )?;
        // SAFETY: the driver returns the name with its terminating zero, and the last byte was zero from the start.
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }
            .to_string_lossy()
            .into_owned();
        Ok(Self { descriptor, name })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next packet into `space`.
    pub fn receive(&self, space: &mut [u8]) -> Result<Received> {
        match rustix::io::read(&self.descriptor, space) {
            Ok(length) => Ok(Received::Packet(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(Errno::BADFD | Errno::FAULT | Errno::IO) => Ok(Received::Gone),
            Err(error) => Err(error).trying(|| format!("read from interface {}", self.name)),
        }
    }

    /// Hands `packet` to the kernel of the namespace; `false` when the kernel does not take it.
    pub fn send(&self, packet: &[u8]) -> bool {
        rustix::io::write(&self.descriptor, packet).is_ok()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What gives access to the device node, by what is in the way.
fn device_remedy(error: &io::Error) -> String {
    match (error.raw_os_error(), fs::metadata(DEVICE)) {
        (Some(libc::EACCES | libc::EPERM), Ok(metadata)) => format!(
            "It has mode {:04o} and this user may not open it: `sudo chmod 0666 {DEVICE}`",
            metadata.permissions().mode() & 0o7777
        ),
        (Some(libc::ENOENT), _) => {
            format!(
                "Load the driver with `sudo modprobe tun`; in a container start it with `--device {DEVICE}`"
            )
        }
        (Some(libc::ENODEV | libc::ENXIO), _) => {
            "The kernel has no TUN driver: `sudo modprobe tun`, or a kernel with CONFIG_TUN".into()
        }
        _ => String::new(),
    }
}
