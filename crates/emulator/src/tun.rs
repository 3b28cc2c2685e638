//! A TUN device: the kernel's IP packets as reads and writes.

use std::ffi::CStr;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Updater, ioctl};

use crate::error::{Result, Trying};
use crate::offload::{VNET_BYTES, Vnet};

const DEVICE: &str = "/dev/net/tun";

/// What the emulator takes unfinished from the kernel: checksums, and TCP and UDP in super-packets (`linux/if_tun.h`).
const OFFLOADS: [usize; 2] = [
    TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN | TUN_F_USO4 | TUN_F_USO6,
    TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN, // before Linux 6.2
];
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;
const TUN_F_TSO_ECN: usize = 0x08;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;

/// One TUN device, one IP packet per read and per write. It goes away when the value is dropped.
///
/// Packets have a [`Vnet`] header before them on this side, whether the device has super-packets or not.
pub struct Tun {
    descriptor: OwnedFd,
    name: String,
    offload: bool,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet of this many bytes, with the header for the device.
    Packet(usize),
    /// No packet waits.
    Nothing,
    /// The interface was deleted, which a program with the capabilities of its node may do.
    Gone,
}

impl Tun {
    /// Creates a device called `name` in the network namespace of the calling thread; `%d` in it becomes a free number.
    /// With `offload` it hands over and takes super-packets, else the kernel cuts them.
    pub fn create(name: &str, offload: bool) -> Result<Self> {
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
        let header = if offload { libc::IFF_VNET_HDR } else { 0 };
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | header) as libc::c_short;
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
        if offload {
            take_unfinished(&descriptor)
                .trying(|| format!("switch on segmentation offload of {name}"))?;
        }
        Ok(Self {
            descriptor,
            name,
            offload,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next packet into `space`, of which the parts follow each other.
    pub fn receive(&self, [head, rest]: [&mut [u8]; 2]) -> Result<Received> {
        let mut before = 0;
        if !self.offload {
            head[..VNET_BYTES].copy_from_slice(&Vnet::default().to_bytes());
            before = VNET_BYTES;
        }
        let mut space = [IoSliceMut::new(&mut head[before..]), IoSliceMut::new(rest)];
        match rustix::io::readv(&self.descriptor, &mut space) {
            Ok(length) => Ok(Received::Packet(before + length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(Errno::BADFD | Errno::FAULT | Errno::IO) => Ok(Received::Gone),
            Err(error) => Err(error).trying(|| format!("read from interface {}", self.name)),
        }
    }

    /// Hands a packet to the kernel of the namespace, of which `parts` begin with the header for the device; `false`
    /// when the kernel does not take it.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> bool {
        match parts {
            [whole] if !self.offload => rustix::io::write(&self.descriptor, &whole[VNET_BYTES..]),
            [whole] => rustix::io::write(&self.descriptor, whole),
            _ => rustix::io::writev(&self.descriptor, parts),
        }
        .is_ok()
    }
}

/// Asks for as much as the kernel has.
fn take_unfinished(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    let mut answer = Ok(());
    for offloads in OFFLOADS {
        // SAFETY: TUNSETOFFLOAD takes its flags by value, on a descriptor of the TUN driver.
        answer = unsafe {
            ioctl(
                descriptor,
                IntegerSetter::<{ libc::TUNSETOFFLOAD as _ }>::new_usize(offloads),
            )
        };
        if answer != Err(Errno::INVAL) {
            break;
        }
    }
    answer
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
