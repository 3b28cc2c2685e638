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

/// Maximum bytes of an IP packet on a link.
pub const MTU: u32 = 1500;

/// Maximum packets that wait in the kernel for the emulator. The driver's default of 500 drops TCP bursts silently.
pub const DEVICE_QUEUE: u32 = 20_000;

/// Minimum level of printed events, as in Python's part of cellbed; if unset, nothing is printed.
const VARIABLE: &str = "CELLBED_LOG";

/// From now on, prints events of at least the level in `CELLBED_LOG`: `debug`, `info`, `warning` or `error`.
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
    // An existing subscriber of the process stays.
    let _ = lines.try_init();
}

/// Take a descriptor that this process inherited under `number`. Errors: no file is open there.
///
/// Call this once per number: dropping the value closes the descriptor.
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
