//! Network namespaces, TUN devices, addresses and routes.
//!
//! Requests to the kernel for the emulator and the network helper.

mod error;
mod namespace;
#[cfg(feature = "netlink")]
mod netlink;
mod prefix;
mod tun;

pub use error::{Error, Result, Trying};
pub use namespace::{
    NetworkNamespace, enter_user_namespace, is_privileged, unshare_host_name, unshare_mounts,
};
#[cfg(feature = "netlink")]
pub use netlink::Netlink;
pub use prefix::Prefix;
pub use tun::{create_tun, end_with_namespace, set_owner};

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use tracing::Level;

/// The largest IP packet in bytes.
pub const MTU: u32 = 1500;

/// Packets that wait in the kernel until the emulator reads them. The driver's 500 drop TCP bursts silently.
pub const DEVICE_QUEUE: u32 = 20_000;

/// The least level of a line, as in Python's part of cellbed; without it nothing is printed.
const VARIABLE: &str = "CELLBED_LOG";

/// Prints events of the level in `CELLBED_LOG` and above from now on: `debug`, `info`, `warning` or `error`.
pub fn print_diagnostics() {
    let level = match std::env::var(VARIABLE).as_deref() {
        Ok("debug") => Level::DEBUG,
        Ok("info") => Level::INFO,
        Ok("warning") => Level::WARN,
        Ok("error") => Level::ERROR,
        _ => return,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_writer(io::stderr);
    // A process that has a subscriber keeps it.
    let _ = lines.try_init();
}

/// Takes a descriptor that this process inherited under `number`; an error if no file is open there.
///
/// Must be called once for a number: the value closes the descriptor when it is dropped.
pub fn take_inherited(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: F_GETFD reads no memory, for any number.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF))
            .trying(|| format!("use the inherited descriptor {number}"));
    }
    // SAFETY: the descriptor is open, and by the contract above nothing else in this process owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
        .trying(|| format!("use the inherited descriptor {number}"))?;
    Ok(descriptor)
}
