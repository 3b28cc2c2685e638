//! `serve` sets up the network of one shell, from the first device to the last rule, and removes it after the shell.

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use cellbed_netdev::{
    DEVICE_QUEUE, MTU, Netlink, NetworkNamespace, Prefix, Trying, create_tun, enter_user_namespace,
    is_privileged, set_owner,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{getppid, getuid};
use serde_json::{Value, json};

use crate::addresses::{Pair, is_in_sight, networks_in_sight};
use crate::error::{Error, Result};
use crate::forwarding::{self, Lock, Table};
use crate::nft;
use crate::request::{Message, Serve};
use crate::rules::{MAHIMAHI_HOSTS, Rules, alias, shell_of};

/// Maximum shells of one user at a time in one network namespace.
const MOST_SHELLS: usize = 256;

/// An IPv6 address on the Internet, for a route lookup.
const SOMEWHERE_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1));

/// Number of descriptors sent to the caller: two devices, a netlink socket for each, the inner network namespace.
const DESCRIPTORS: usize = 5;

/// Serve the caller at standard input, a Unix stream socket, until the caller closes the other end.
pub fn serve(request: &Serve) -> ExitCode {
    let socket = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(descriptor) => UnixStream::from(descriptor),
        Err(error) => {
            eprintln!("cellbed-net: standard input is not open: {error}");
            return ExitCode::FAILURE;
        }
    };
    match serve_caller(request, &socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let event = json!({"event": "error", "message": error.to_string()});
            // The caller may have ended.
            if send(&socket, &event, &[]).is_err() {
                eprintln!("cellbed-net: {error}");
            }
            ExitCode::from(error.status())
        }
    }
}

fn serve_caller(request: &Serve, socket: &UnixStream) -> Result<()> {
    let caller = getppid().ok_or_else(|| Error::Refused("the caller has ended".into()))?;
    let mut messages = BufReader::new(socket);
    if request.private {
        let user = !is_privileged();
        enter_private_namespace(user)?;
        let event = json!({"event": "private", "user_namespace": user});
        send(socket, &event, &[])?;
    }
    if request.private && !request.offline {
        match next(&mut messages)? {
            Some(Message::Go) => {}
            Some(Message::Names(_)) => return Err(Error::Request("expected 'go'".into())),
            None => return Ok(()),
        }
    }
    if !request.offline {
        nft::share_capability()?;
    }
    let device = request.device(caller.as_raw_nonzero().get());
    let lock = Lock::take()?;
    let network = Network::create(request, device, &lock);
    drop(lock);
    let mut network = match network {
        Ok(network) => network,
        Err(error) => {
            // The device created here no longer exists, so this shell does not keep forwarding on.
            if !request.offline {
                let released = Lock::take().and_then(|lock| forwarding::release(&lock));
                if let Err(problem) = released {
                    tracing::warn!("forwarding is not restored: {problem}");
                }
            }
            return Err(error);
        }
    };
    let served = network
        .hand_over(socket)
        .and_then(|()| network.answer(&mut messages, socket));
    match request.offline {
        // The namespace ends with this process.
        true => served,
        false => served.and(network.remove()),
    }
}

/// Move this process into a new network namespace with loopback, optionally in a new user namespace.
fn enter_private_namespace(user: bool) -> Result<()> {
    if user {
        enter_user_namespace()?;
    }
    NetworkNamespace::create()?.enter()?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?;
    Ok(netlink.bring_up(loopback)?)
}

/// The objects of one shell.
struct Network {
    rules: Rules,
    inner_device: &'static str,
    ipv6: bool,
    /// True if chains of other programs contain rules for the device.
    passes: bool,
    /// `None` if offline.
    table: Option<Table>,
    index: u32,
    /// In the order of sending to the caller; empty after sending.
    descriptors: Vec<OwnedFd>,
}

impl Network {
    fn create(request: &Serve, device: String, lock: &Lock) -> Result<Self> {
        let user = getuid().as_raw();
        let living = match request.offline {
            true => Vec::new(),
            false => forwarding::live_tables(lock)?,
        };
        let mine = living
            .iter()
            .filter(|table| shell_of(&table.name).is_some_and(|(owner, _)| owner == user));
        if mine.count() >= MOST_SHELLS {
            return Error::refused(format!(
                "user {user} has {MOST_SHELLS} shells already; end some of them"
            ));
        }
        let mut netlink = Netlink::open()?;
        if netlink.find(&device)?.is_some() {
            // Opening an existing device would take it over.
            return Error::refused(format!(
                "the network device {device} exists already; remove it, or start another shell"
            ));
        }
        let routes = fs::read_to_string("/proc/thread-self/net/fib_trie")
            .trying(|| "read the routes of this network namespace".into())?;
        let used = networks_in_sight(&routes);
        let pair = match request.mahimahi {
            true => Pair::choose_mahimahi(&used, request.nested)?,
            false => Pair::choose(&used)?,
        };
        // A route lookup, because /proc/net/ipv6_route is not read atomically.
        let ipv6 = netlink.has_way_to(SOMEWHERE_IPV6)?;
        let redirected = MAHIMAHI_HOSTS.into_iter().filter(|host| {
            let elsewhere = is_in_sight(*host, &used) && !belongs_to_shell(*host, &living);
            request.mahimahi && !request.nested && *host != pair.gateway && !elsewhere
        });
        let rules = Rules {
            user,
            pair,
            host: request.host,
            host_ipv6: request.host_ipv6,
            redirected: redirected.collect(),
            device,
        };
        let ends = [
            (pair.gateway.into(), pair.inside.into()),
            (pair.gateway_ipv6.into(), pair.inside_ipv6.into()),
        ];
        // The device is created last and removed first: it always has its rules.
        let (mut passes, mut table) = (false, None);
        if !request.offline {
            (passes, table) = load_rules(&rules, request.private)?;
            forwarding::hold(lock, ipv6)?;
        }
        let (outer, outer_netlink, index) = create_device(&rules.device, &ends, user)?;
        let inner = NetworkNamespace::create()?;
        let (inner_tun, inner_netlink) = inner.run(|| {
            let far = ends.map(|(gateway, inside)| (inside, gateway));
            set_up_inside(request.inner_device(), &far, ipv6, user)
        })?;
        let namespace = inner.as_fd().try_clone_to_owned();
        let namespace = namespace.trying(|| "keep a namespace".into())?;
        Ok(Self {
            rules,
            inner_device: request.inner_device(),
            ipv6,
            passes,
            table,
            index,
            descriptors: vec![outer, inner_tun, outer_netlink, inner_netlink, namespace],
        })
    }

    /// Send the descriptors to the caller, and keep no copy that would outlive the caller.
    fn hand_over(&mut self, socket: &UnixStream) -> Result<()> {
        let pair = self.rules.pair;
        let event = json!({
            "event": "ready",
            "device": self.rules.device,
            "inner_device": self.inner_device,
            "table": self.rules.table(),
            "gateway": pair.gateway,
            "inside": pair.inside,
            "gateway_ipv6": pair.gateway_ipv6,
            "inside_ipv6": pair.inside_ipv6,
            "ipv6": self.ipv6,
        });
        let descriptors = std::mem::take(&mut self.descriptors);
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        send(socket, &event, &borrowed)
    }

    /// Handle the caller's requests until the caller closes the socket.
    fn answer(&self, messages: &mut impl BufRead, socket: &UnixStream) -> Result<()> {
        let mut named = false;
        while let Some(message) = next(messages)? {
            match message {
                Message::Names(_) if named => {
                    let problem = "names: the shell has a name server already".into();
                    return Err(Error::Request(problem));
                }
                Message::Names(port) => {
                    named = true;
                    nft::load("adds the name server", &self.rules.names(port))?;
                    send(socket, &json!({"event": "done"}), &[])?;
                }
                Message::Go => return Err(Error::Request("'go' is for --private".into())),
            }
        }
        Ok(())
    }

    /// Remove the device and its rules. The last shell also removes forwarding; only this one waits for the lock.
    fn remove(self) -> Result<()> {
        // The caller can have made the device persistent (TUNSETPERSIST).
        let mut netlink = Netlink::open()?;
        if netlink.find(&self.rules.device)? == Some(self.index) {
            netlink.delete(self.index)?;
        }
        if let Some(table) = &self.table {
            forwarding::remove(table, self.passes)?;
        }
        forwarding::release(&Lock::take()?)
    }
}

/// Load the rules of a shell. Return whether chains of other programs have rules of the shell, and its table.
fn load_rules(rules: &Rules, private: bool) -> Result<(bool, Option<Table>)> {
    let passes = match private {
        true => String::new(),
        false => firewall_passes(rules)?,
    };
    let load = |clamp| nft::load("adds the rules", &(rules.text(clamp) + &passes));
    load(true).or_else(|problem| {
        tracing::info!("loading the rules without a clamp of segments: {problem}");
        load(false)
    })?;
    let mut tables = forwarding::tables()?.into_iter();
    let table = tables.find(|table| table.name == rules.table());
    Ok((!passes.is_empty(), table))
}

/// Rules for chains that drop forwarded packets, as Docker, ufw and firewalld set them up.
///
/// A chain's drop is final even if another table accepts (nft(8), "verdict statement"), so the chain needs the rule.
fn firewall_passes(rules: &Rules) -> Result<String> {
    let (mut text, device, comment) = (String::new(), &rules.device, rules.table());
    for chain in nft::list(&["list", "chains"], "chain")? {
        let of = |key: &str| chain[key].as_str().unwrap_or_default();
        let (family, table, name) = (of("family"), of("table"), of("name"));
        let drops = of("policy") == "drop" || table == "firewalld";
        if drops && ["inet", "ip", "ip6"].contains(&family) && of("hook") == "forward" {
            for way in ["iifname", "oifname"] {
                text += &format!(
                    "insert rule {family} {table} {name} {way} \"{device}\" accept comment \"{comment}\"\n"
                );
            }
        }
    }
    Ok(text)
}

/// Return whether an address belongs to a parallel Mahimahi shell.
fn belongs_to_shell(address: Ipv4Addr, living: &[Table]) -> bool {
    address.octets()[..3] == [100, 64, 0] && !living.is_empty()
}

/// Create the device `name` in the calling thread's namespace. `ends`: local and peer addresses.
fn create_device(
    name: &str,
    ends: &[(IpAddr, IpAddr)],
    user: u32,
) -> Result<(OwnedFd, OwnedFd, u32)> {
    let mut netlink = Netlink::open()?;
    let (tun, name) = create_tun(name, true)?;
    set_owner(&tun, user)?;
    let index = netlink.index(&name)?;
    netlink.set_alias(index, &alias(user))?;
    netlink.configure(index, MTU, DEVICE_QUEUE)?;
    netlink.bring_up(index)?;
    for &(address, peer) in ends {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let [own, other] = [address, peer].map(|address| Prefix { address, length });
        if address.is_ipv4() {
            netlink.add_address(index, own, peer)?;
        } else {
            // The kernel adds the route to an IPv6 peer only after duplicate address detection.
            netlink.add_address(index, own, address)?;
            netlink.add_route(index, other, None, None)?;
        }
    }
    let socket = Netlink::open()?.as_fd().try_clone_to_owned();
    Ok((tun, socket.trying(|| "keep a socket".into())?, index))
}

/// Set up the calling thread's namespace as the inside of a shell of `user`.
fn set_up_inside(
    device: &str,
    ends: &[(IpAddr, IpAddr)],
    ipv6: bool,
    user: u32,
) -> Result<(OwnedFd, OwnedFd)> {
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?;
    // Programs for Mahimahi check whether the namespace forwards before they nest. A kernel without IPv6 lacks the
    // other files; adding the first address reports that.
    for (name, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
    ] {
        if let Err(error) = fs::write(format!("/proc/sys/net/{name}"), value) {
            tracing::info!("net/{name} is not set to {value}: {error}");
        }
    }
    netlink.bring_up(loopback)?;
    let (tun, socket, index) = create_device(device, ends, user)?;
    for (_, gateway) in ends {
        let (everywhere, via) = match gateway {
            IpAddr::V4(_) => ("0.0.0.0/0", Some(*gateway)),
            IpAddr::V6(_) if ipv6 => ("::/0", None),
            IpAddr::V6(_) => continue,
        };
        let prefix = everywhere.parse().map_err(Error::Refused)?;
        netlink.add_route(index, prefix, via, None)?;
    }
    Ok((tun, socket))
}

/// Return the next message; `None` when the caller has closed the socket.
fn next(messages: &mut impl BufRead) -> Result<Option<Message>> {
    let mut line = Vec::new();
    let read = messages
        .take(Message::LONGEST as u64)
        .read_until(b'\n', &mut line);
    match read.trying(|| "read from the caller".into())? {
        0 => Ok(None),
        _ => {
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            Message::parse(line).map(Some)
        }
    }
}

fn send(socket: &UnixStream, event: &Value, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let line = format!("{event}\n");
    let parts = [IoSlice::new(line.as_bytes())];
    let sent = sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL);
    Ok(sent.map(drop).trying(|| "answer the caller".into())?)
}
