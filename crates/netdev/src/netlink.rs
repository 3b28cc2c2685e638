//! Interfaces, addresses and routes of one network namespace, over rtnetlink.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, Nla,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo,
};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, Stats64,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::error::{Error, Result, Trying};
use crate::prefix::Prefix;

/// Maximum time until the kernel makes an address usable.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Attribute of a TUN device (linux/if_link.h).
const IFLA_TUN_PERSIST: u16 = 6;

/// A netlink socket in the network namespace of the thread that opened it.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Open a socket in the calling thread's namespace.
    pub fn open() -> Result<Self> {
        let open = || {
            let socket = Socket::new(NETLINK_ROUTE)?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            socket: open().trying(|| "open a netlink socket".into())?,
            sequence: 0,
        })
    }

    /// Use a socket that another process has opened; requests concern the namespace of the opener.
    pub fn over(descriptor: OwnedFd) -> Self {
        // SAFETY: the socket owns the descriptor from here on.
        let socket = unsafe { Socket::from_raw_fd(descriptor.into_raw_fd()) };
        Self {
            socket,
            sequence: 0,
        }
    }

    /// Return the index of the interface called `name`.
    pub fn index(&mut self, name: &str) -> Result<u32> {
        Ok(self.named(name)?.header.index)
    }

    /// Like [`index`](Self::index), but `None` if there is no such interface.
    pub fn find(&mut self, name: &str) -> Result<Option<u32>> {
        match self.index(name) {
            Err(Error::System { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Return whether the TUN device called `name` outlives its descriptor (`TUNSETPERSIST`).
    pub fn is_persistent(&mut self, name: &str) -> Result<bool> {
        let attributes = self.named(name)?.attributes;
        Ok(attributes.iter().any(|attribute| {
            let LinkAttribute::LinkInfo(infos) = attribute else {
                return false;
            };
            infos.iter().any(|info| match info {
                LinkInfo::Data(InfoData::Tun(values)) => values.iter().any(|value| {
                    let mut persistent = [0];
                    let named = value.kind() == IFLA_TUN_PERSIST && value.value_len() == 1;
                    if named {
                        value.emit_value(&mut persistent);
                    }
                    persistent == [1]
                }),
                _ => false,
            })
        }))
    }

    /// Return the alias of the interface called `name`; only a network administrator can set it.
    pub fn alias(&mut self, name: &str) -> Result<Option<String>> {
        let attributes = self.named(name)?.attributes;
        let mut attributes = attributes.into_iter();
        Ok(attributes.find_map(|attribute| match attribute {
            LinkAttribute::IfAlias(text) => Some(text),
            _ => None,
        }))
    }

    fn named(&mut self, name: &str) -> Result<LinkMessage> {
        let mut message = link(0);
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        self.look(message, || format!("find the interface {name}"))
    }

    /// Set the alias of an interface.
    pub fn set_alias(&mut self, index: u32, text: &str) -> Result<()> {
        self.change(index, LinkAttribute::IfAlias(text.into()), || {
            format!("set the alias of interface {index}")
        })
    }

    fn change(
        &mut self,
        index: u32,
        attribute: LinkAttribute,
        what: impl Fn() -> String,
    ) -> Result<()> {
        let mut message = link(index);
        message.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(message), 0, what)
    }

    /// Delete an interface.
    pub fn delete(&mut self, index: u32) -> Result<()> {
        self.request(RouteNetlinkMessage::DelLink(link(index)), 0, || {
            format!("delete interface {index}")
        })
    }

    /// Bring an interface up.
    pub fn bring_up(&mut self, index: u32) -> Result<()> {
        let mut message = link(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("bring up interface {index}")
        })
    }

    /// Set the MTU (bytes) and the length of the transmit queue (packets). Stops the kernel's automatic IPv6 addresses
    /// and router solicitations on the interface.
    pub fn configure(&mut self, index: u32, mtu: u32, queue: u32) -> Result<()> {
        self.change(index, LinkAttribute::Mtu(mtu), || {
            format!("set MTU {mtu} of interface {index}")
        })?;
        self.change(index, LinkAttribute::TxQueueLen(queue), || {
            format!("set queue length {queue} of interface {index}")
        })?;
        let none = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let unspecific = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(none)]);
        let what = || format!("configure IPv6 of interface {index}");
        match self.change(index, unspecific, what) {
            // A kernel without IPv6 assigns no automatic addresses either.
            Err(Error::System { source, .. })
                if matches!(
                    source.raw_os_error(),
                    Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Add an address that is usable at once (no duplicate address detection). `facing` is the address of the other
    /// end, to which the prefix belongs, or the address itself.
    pub fn add_address(&mut self, index: u32, prefix: Prefix, facing: IpAddr) -> Result<()> {
        self.add_address_with(index, prefix, vec![AddressAttribute::Address(facing)])
    }

    /// Like [`add_address`](Self::add_address), but an IPv6 address is deprecated (RFC 4862 §5.5.4). The address works,
    /// but programs that look up a name with both kinds try IPv4 first (RFC 6724 §6, rule 3).
    pub fn add_address_ipv4_first(&mut self, index: u32, prefix: Prefix) -> Result<()> {
        let mut attributes = vec![AddressAttribute::Address(prefix.address)];
        if prefix.address.is_ipv6() {
            let mut lifetimes = CacheInfo::default();
            lifetimes.ifa_valid = u32::MAX;
            attributes.push(AddressAttribute::CacheInfo(lifetimes));
        }
        self.add_address_with(index, prefix, attributes)
    }

    fn add_address_with(
        &mut self,
        index: u32,
        prefix: Prefix,
        mut attributes: Vec<AddressAttribute>,
    ) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.length;
        message.header.index = index;
        message.header.scope = AddressScope::Universe;
        attributes.push(AddressAttribute::Local(prefix.address));
        if prefix.address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        message.attributes = attributes;
        self.add(RouteNetlinkMessage::NewAddress(message), prefix, || {
            format!("add the address {prefix} to interface {index}")
        })
    }

    /// Wait until the kernel accepts packets to `address`, which was added to an interface of this namespace.
    ///
    /// The kernel acknowledges an IPv6 address, and lets programs bind to it, before its route exists. A work queue
    /// adds the route, milliseconds later on a busy machine. Packets that arrive earlier are dropped
    /// (`Ip6InAddrErrors`).
    pub fn wait_until_local(&mut self, address: IpAddr) -> Result<()> {
        let what = || format!("wait until the kernel takes packets to {address}");
        let deadline = Instant::now() + LONGEST_WAIT;
        while Instant::now() < deadline {
            let route = self.route_to(address, what)?;
            if route.is_some_and(|route| route.header.kind == RouteType::Local) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(Error::Netlink {
            what: what(),
            problem: "its route did not appear within 20 s".into(),
        })
    }

    /// Routes `prefix` through an interface, via the router `gateway` if given. window: TCP's initial window on this
    /// route, segments.
    pub fn add_route(
        &mut self,
        index: u32,
        prefix: Prefix,
        gateway: Option<IpAddr>,
        window: Option<u32>,
    ) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(prefix.address);
        message.header.destination_prefix_length = prefix.length;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = match prefix.address.is_ipv4() && gateway.is_none() {
            true => RouteScope::Link,
            false => RouteScope::Universe,
        };
        message.header.kind = RouteType::Unicast;
        let metrics = window.map(|segments| vec![RouteMetric::InitCwnd(segments)]);
        let target = (prefix.length > 0).then(|| RouteAddress::from(prefix.address));
        let attributes = [
            Some(RouteAttribute::Oif(index)),
            metrics.map(RouteAttribute::Metrics),
            gateway.map(|router| RouteAttribute::Gateway(router.into())),
            target.map(RouteAttribute::Destination),
        ];
        message.attributes = attributes.into_iter().flatten().collect();
        self.add(RouteNetlinkMessage::NewRoute(message), prefix, || {
            format!("add a route to {prefix} through interface {index}")
        })
    }

    /// Return whether packets to `address` would leave through an interface other than loopback.
    pub fn has_way_to(&mut self, address: IpAddr) -> Result<bool> {
        let what = || format!("look up the route to {address}");
        let loopback = RouteAttribute::Oif(self.index("lo")?);
        let route = self.route_to(address, what)?;
        Ok(route.is_some_and(|route| {
            route.header.kind == RouteType::Unicast && !route.attributes.contains(&loopback)
        }))
    }

    fn route_to(
        &mut self,
        address: IpAddr,
        what: impl Fn() -> String,
    ) -> Result<Option<RouteMessage>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(RouteAddress::from(address))];
        let request = RouteNetlinkMessage::GetRoute(message);
        Ok(match self.exchange(request, NLM_F_REQUEST, what)? {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => Some(route),
            _ => None,
        })
    }

    /// Return the kernel's counters of an interface.
    pub fn statistics(&mut self, index: u32) -> Result<Stats64> {
        let what = || format!("read the counters of interface {index}");
        self.look(link(index), what)?
            .attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(it) => Some(it),
                _ => None,
            })
            .ok_or_else(|| Error::Netlink {
                what: what(),
                problem: "it has no counters".into(),
            })
    }

    fn look(&mut self, message: LinkMessage, what: impl Fn() -> String) -> Result<LinkMessage> {
        let request = RouteNetlinkMessage::GetLink(message);
        match self.exchange(request, NLM_F_REQUEST, &what)? {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) => Ok(message),
            NetlinkPayload::Error(error) => Err(error.to_io()).trying(what),
            other => Err(Error::Netlink {
                what: what(),
                problem: format!("unexpected message {other:?}"),
            }),
        }
    }

    /// Send a request and wait for the kernel's acknowledgement.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<()> {
        match self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags, &what)? {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()).trying(what),
            _ => Ok(()),
        }
    }

    /// Send a request for an address or a route.
    fn add(
        &mut self,
        message: RouteNetlinkMessage,
        prefix: Prefix,
        what: impl Fn() -> String,
    ) -> Result<()> {
        let added = self.request(message, NLM_F_CREATE | NLM_F_EXCL, what);
        added.map_err(|error| match error {
            Error::System { what, source, .. } => Error::System {
                what,
                remedy: ipv6_remedy(prefix, &source),
                source,
            },
            other => other,
        })
    }

    /// Send a request and return the payload of the answer's first message.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<NetlinkPayload<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).trying(&what)?;
        loop {
            let (answer, _) = self.socket.recv_from_full().trying(&what)?;
            let answer =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(|error| {
                    Error::Netlink {
                        what: what(),
                        problem: error.to_string(),
                    }
                })?;
            if answer.header.sequence_number == self.sequence {
                return Ok(answer.payload);
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn ipv6_remedy(prefix: Prefix, error: &io::Error) -> String {
    let refused = matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
    );
    if prefix.address.is_ipv6() && refused {
        ". This kernel has IPv6 switched off: boot it without `ipv6.disable=1`, or ask for IPv4 addresses only".into()
    } else {
        String::new()
    }
}
