//! Socket options.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;

use nix::sys::socket::{setsockopt, sockopt as more};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use cellbed_netdev::{Result, Trying};

/// Forbids fragments without believing what others say of the path's MTU: a packet leaves whole or not at all.
pub(super) fn never_fragment(socket: &OwnedFd, family: AddressFamily) -> Result<()> {
    let what = || "forbid fragments".into();
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE).trying(what)?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE).trying(what)?;
    }
    Ok(())
}

/// Has the kernel stamp packets in ns as they arrive.
pub(super) fn stamp_arrivals(socket: &OwnedFd) -> Result<()> {
    setsockopt(socket, more::ReceiveTimestampns, &true)
        .trying(|| "have the kernel stamp packets".into())
}

/// Has the kernel report how many packets found the socket's buffer full.
pub(super) fn count_overflows(socket: &OwnedFd) -> Result<()> {
    setsockopt(socket, more::RxqOvfl, &1)
        .trying(|| "have the kernel count what its buffer drops".into())
}

/// Buffers of `bytes`, beyond the system's limit where that is allowed, else as far as the limit goes.
pub(super) fn enlarge_buffers(socket: &OwnedFd, bytes: usize) -> Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|error| {
            tracing::info!("the receive buffer is limited by net.core.rmem_max: {error}");
            sockopt::set_socket_recv_buffer_size(socket, bytes)
        })
        .trying(|| "enlarge a socket's receive buffer".into())?;
    setsockopt(socket, more::SndBufForce, &bytes)
        .or_else(|error| {
            tracing::info!("the send buffer is limited by net.core.wmem_max: {error}");
            setsockopt(socket, more::SndBuf, &bytes)
        })
        .trying(|| "enlarge a socket's send buffer".into())
}

/// Ties the socket to an interface: its packets leave and arrive by that alone, independently of the routes.
pub(super) fn bind_to_interface(socket: &OwnedFd, interface: &str) -> Result<()> {
    setsockopt(socket, more::BindToDevice, &OsString::from(interface)).trying_or(
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
    )
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
