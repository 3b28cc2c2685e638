//! Socket options that `rustix` does not have.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;
use rustix::net::{AddressFamily, sockopt};

use crate::error::{Result, Trying};

/// Forbids fragments without believing what others say of the path's MTU: a packet leaves whole or not at all.
pub(super) fn never_fragment(socket: &OwnedFd, family: AddressFamily) -> Result<()> {
    let what = || "forbid fragments".into();
    set(
        socket,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )
    .trying(what)?;
    if family == AddressFamily::INET6 {
        let (option, value) = (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
        set(socket, libc::IPPROTO_IPV6, option, value).trying(what)?;
    }
    Ok(())
}

/// Has the kernel stamp packets in ns as they arrive.
pub(super) fn stamp_arrivals(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
        .trying(|| "have the kernel stamp packets".into())
}

/// Has the kernel tell how many packets found the socket's buffer full.
pub(super) fn count_overflows(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
        .trying(|| "have the kernel count what its buffer drops".into())
}

/// Buffers of `bytes`, beyond the system's limit where that is allowed, else as far as the limit goes.
pub(super) fn enlarge_buffers(socket: &OwnedFd, bytes: usize) -> Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))
        .trying(|| "enlarge a socket's receive buffer".into())?;
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        bytes as c_int,
    )
    .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes).map_err(io::Error::from))
    .trying(|| "enlarge a socket's send buffer".into())
}

/// Ties the socket to an interface: its packets leave and come by that alone, whatever the routes say.
pub(super) fn bind_to_interface(socket: &OwnedFd, interface: &str) -> Result<()> {
    set_bytes(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BINDTODEVICE,
        interface.as_bytes(),
    )
    .trying_or(
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

fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

#[expect(unsafe_code)]
fn set_bytes(socket: &OwnedFd, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // Sound: the kernel reads `length` bytes at `value`, which is borrowed for the call, and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
