//! TUN devices: the kernel's IP packets as reads and writes of a descriptor.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl};

use crate::error::{Result, Trying};

const DEVICE: &str = "/dev/net/tun";

/// Offloads of the emulator: open checksums, and TCP and UDP in super-packets (`linux/if_tun.h`).
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

/// Create a TUN device `name` in the calling thread's network namespace; `%d` in `name` becomes a free number.
///
/// Return the descriptor (non-blocking, keeps the device alive) and the device's name. With `offload`, every packet
/// has a `virtio_net_hdr` before it, and super-packets are passed whole. Without it, the kernel segments super-packets.
pub fn create_tun(name: &str, offload: bool) -> Result<(OwnedFd, String)> {
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
    // SAFETY: the driver returns the name with a terminating zero, and the last byte was zero before.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }
        .to_string_lossy()
        .into_owned();
    if offload {
        take_unfinished(&descriptor)
            .trying(|| format!("switch on segmentation offload of {name}"))?;
    }
    Ok((descriptor, name))
}

/// Leave the removal of a device to the end of its network namespace.
///
/// The kernel removes the devices of ended namespaces together. Closing a descriptor removes a single device, and waits
/// 20 to 40 ms.
pub fn end_with_namespace(descriptor: &OwnedFd) -> Result<()> {
    set::<{ libc::TUNSETPERSIST as _ }>(descriptor, 1)
        .trying(|| "keep a network interface until its namespace ends".into())
}

/// Reserve a device for a user. Without an owner, every user may attach to it after the descriptor is closed.
pub fn set_owner(descriptor: &OwnedFd, user: u32) -> Result<()> {
    set::<{ libc::TUNSETOWNER as _ }>(descriptor, user as usize)
        .trying(|| format!("give a network interface to user {user}"))
}

/// Enable all offloads that the kernel supports.
fn take_unfinished(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    let mut answer = Ok(());
    for offloads in OFFLOADS {
        answer = set::<{ libc::TUNSETOFFLOAD as _ }>(descriptor, offloads);
        if answer != Err(Errno::INVAL) {
            break;
        }
        tracing::info!(
            "the kernel lacks offloads {offloads:#x}, as before Linux 6.2: UDP is exchanged in single packets"
        );
    }
    answer
}

/// Set a property of a device.
fn set<const REQUEST: Opcode>(descriptor: &OwnedFd, value: usize) -> rustix::io::Result<()> {
    // SAFETY: the requests above take the argument by value, on a descriptor of the TUN driver.
    unsafe { ioctl(descriptor, IntegerSetter::<REQUEST>::new_usize(value)) }
}

/// Return the remedy that gives access to the device node.
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
