//! Nodes: a network namespace with one TUN device, ready for programs.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cellbed_netdev::{DEVICE_QUEUE, MTU, Netlink, NetworkNamespace, take_inherited};

use crate::config::{Attached, Vertex};
use crate::error::{Result, Trying};
use crate::tun::Tun;

/// Name of the device in a separate namespace.
const INTERFACE: &str = "cellbed0";

/// A vertex with a device.
pub struct Node {
    /// Namespace of the node; `None` if the device is attached.
    pub namespace: Option<NetworkNamespace>,
    /// Device of the node, which lasts while the value is held.
    pub tun: Arc<Tun>,
    /// Netlink socket in the namespace.
    netlink: Mutex<Netlink>,
    index: u32,
    addresses: Vec<IpAddr>,
}

/// The kernel's counters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Interface {
    /// Packets lost at the device, in both directions.
    pub dropped: u64,
    /// Packets that passed the device, in both directions.
    pub packets: u64,
}

impl Node {
    /// Bring up the node of a vertex; return `None` for an internal vertex.
    pub fn bring_up(vertex: &Vertex) -> Result<Option<Self>> {
        let (namespace, (tun, netlink, index)) = match &vertex.device {
            Some(device) => (None, attach(device)?),
            None if vertex.namespace.is_none() => return Ok(None),
            None => {
                let namespace = NetworkNamespace::create()?;
                let furnished = namespace.run(|| furnish(vertex))?;
                furnished.0.end_with_namespace()?;
                (Some(namespace), furnished)
            }
        };
        Ok(Some(Self {
            namespace,
            tun: Arc::new(tun),
            netlink: Mutex::new(netlink),
            index,
            addresses: vertex.at_device().map(|it| it.address).collect(),
        }))
    }

    /// Wait until packets to all addresses of the node reach its programs.
    pub fn wait_until_reachable(&self) -> Result<()> {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = self.addresses.iter();
        Ok(addresses.try_for_each(|address| netlink.wait_until_local(*address))?)
    }

    /// Read the device's counters.
    pub fn counters(&self) -> Result<Interface> {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = netlink.statistics(self.index)?;
        Ok(Interface {
            dropped: counters.tx_dropped + counters.rx_dropped,
            packets: counters.tx_packets + counters.rx_packets,
        })
    }
}

/// Take over a configured device.
fn attach(device: &Attached) -> Result<(Tun, Netlink, u32)> {
    let tun = Tun::attach(take_inherited(device.descriptor)?, &device.name);
    let mut netlink = Netlink::over(take_inherited(device.netlink)?);
    let index = netlink.index(&device.name)?;
    Ok((tun, netlink, index))
}

/// Create and configure the device in the calling thread's namespace.
fn furnish(vertex: &Vertex) -> Result<(Tun, Netlink, u32)> {
    let mut netlink = Netlink::open()?;
    let name = vertex.interface.as_deref().unwrap_or(INTERFACE);
    let tun = Tun::create(name)?;
    let index = netlink.index(tun.name())?;
    for (key, value) in &vertex.sysctls {
        set_kernel(&vertex.name, key, value)?;
    }
    allow_ipv6(vertex);
    let loopback = netlink.index("lo")?;
    netlink.bring_up(loopback)?;
    netlink.configure(index, MTU, DEVICE_QUEUE)?;
    netlink.bring_up(index)?;
    for prefix in vertex.at_device() {
        netlink.add_address_ipv4_first(index, *prefix)?;
    }
    for prefix in &vertex.routes {
        netlink.add_route(index, *prefix, None, vertex.initial_window)?;
    }
    Ok((tun, netlink, index))
}

/// Enable IPv6 in a separate namespace that inherited the host's setting against it.
fn allow_ipv6(vertex: &Vertex) {
    if vertex
        .addresses
        .iter()
        .any(|prefix| prefix.address.is_ipv6())
    {
        for which in ["all", "default"] {
            // A kernel without IPv6 has no such file; then adding the address fails.
            let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            if let Err(error) = fs::write(&path, "0") {
                tracing::info!(
                    "IPv6 is not switched on in {}: {path}: {error}",
                    vertex.name
                );
            }
        }
    }
}

/// Write a kernel setting in the calling thread's namespace, unless already set.
fn set_kernel(node: &str, key: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    if fs::read_to_string(&path).is_ok_and(|now| now.trim() == value.trim()) {
        return Ok(());
    }
    let what = || format!("set {key} to {value:?} in the node {node:?}");
    let remedy = |_: &io::Error| match Path::new(&path).exists() {
        true => String::new(),
        false => "This kernel has no such setting".into(),
    };
    Ok(fs::write(&path, value).trying_or(what, remedy)?)
}
