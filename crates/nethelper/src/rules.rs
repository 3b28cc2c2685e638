//! The table of a shell in the packet filter, as text of nft(8).

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::addresses::Pair;

/// Common prefix of the tables of all shells.
pub const TABLES: &str = "cellbed.";

/// Addresses of the host in public scripts of Mahimahi's users: the addresses of the original's first shell.
pub const MAHIMAHI_HOSTS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 64, 0, 1), Ipv4Addr::new(10, 0, 0, 1)];

const ALIAS: &str = "cellbed shell of user ";

/// Return the alias of both devices of a shell of `user`.
///
/// Only a network administrator can set an alias: the inner device's alias proves the namespace's user to `enter`.
pub fn alias(user: u32) -> String {
    format!("{ALIAS}{user}")
}

/// Return the user of the shell whose device has this alias.
pub fn parse_alias(alias: Option<&str>) -> Option<u32> {
    alias?.strip_prefix(ALIAS)?.parse().ok()
}

/// Packet rules of one shell in the namespace of the outer end.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Id of the caller.
    pub user: u32,
    /// The outer device.
    pub device: String,
    pub pair: Pair,
    /// Substitute destination of packets for the gateway, in a namespace between the shell and the host.
    pub host: Option<Ipv4Addr>,
    pub host_ipv6: Option<Ipv6Addr>,
    /// Other addresses that are redirected to the gateway.
    pub redirected: Vec<Ipv4Addr>,
}

impl Rules {
    pub fn table(&self) -> String {
        table_of(self.user, &self.device)
    }

    /// Return the table as text.
    ///
    /// `clamp`: limit TCP segments to the smallest MTU of the route (nft(8), "rt mtu"). The link's MTU is 1500, and
    /// some networks lose larger packets without an error. Kernels without `nft_exthdr` or `nft_rt` need `false`.
    pub fn text(&self, clamp: bool) -> String {
        let Self { device, pair, .. } = self;
        let Pair {
            gateway,
            inside,
            gateway_ipv6,
            inside_ipv6,
        } = pair;
        let table = self.table();
        let mut dnat = String::new();
        let to_host = "meta l4proto { tcp, udp } th dport != 53 dnat";
        let mut gateways = vec![gateway.to_string()];
        gateways.extend(self.redirected.iter().map(Ipv4Addr::to_string));
        if let Some(host) = self.host {
            let gateways = gateways.join(", ");
            let _ = writeln!(dnat, "    ip daddr {{ {gateways} }} {to_host} ip to {host}");
        }
        if let Some(host) = self.host_ipv6 {
            let _ = writeln!(dnat, "    ip6 daddr {gateway_ipv6} {to_host} ip6 to {host}");
        }
        if gateways.len() > 1 {
            let others = gateways[1..].join(", ");
            let _ = writeln!(
                dnat,
                "    iifname \"{device}\" ip daddr {{ {others} }} dnat ip to {gateway}"
            );
        }
        let flagless = match self.host {
            // pasta of 2023 acknowledges the first segment of a new connection with a segment without flags. Such a
            // segment is not valid TCP (RFC 9293, §3.10.7.4) and would be answered with a reset. The next
            // acknowledgement is valid.
            Some(_) => format!(
                "    iifname != \"{device}\" tcp flags & (fin | syn | rst | ack) == 0 drop\n"
            ),
            None => String::new(),
        };
        // The device belongs to the caller, who can write any packet to it: reject source addresses of others, and
        // ports reserved for root.
        let mut text = format!(
            "table inet {table} {{
  chain guard {{
    type filter hook prerouting priority -310; policy accept;
    iifname \"{device}\" ip saddr != {inside} drop
    iifname \"{device}\" ip6 saddr != {inside_ipv6} drop
{flagless}  }}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
{dnat}  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {inside} oifname != \"{device}\" meta l4proto {{ tcp, udp }} masquerade to :1024-65535
    ip saddr {inside} oifname != \"{device}\" masquerade
    ip6 saddr {inside_ipv6} oifname != \"{device}\" meta l4proto {{ tcp, udp }} masquerade to :1024-65535
    ip6 saddr {inside_ipv6} oifname != \"{device}\" masquerade
  }}
"
        );
        if clamp {
            let set = "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu";
            let _ = write!(
                text,
                "  chain forward {{
    type filter hook forward priority -150; policy accept;
    iifname \"{device}\" {set}
    oifname \"{device}\" {set}
  }}
"
            );
        }
        text.push_str("}\n");
        text
    }

    /// Return the rule that redirects name queries to a server at the gateway's `port`.
    pub fn names(&self, port: u16) -> String {
        let gateway = self.pair.gateway;
        format!(
            "insert rule inet {} prerouting iifname \"{}\" ip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 \
             dnat ip to {gateway}:{port}\n",
            self.table(),
            self.device
        )
    }
}

/// Return the name of the table of a user's shell.
pub fn table_of(user: u32, device: &str) -> String {
    format!("{TABLES}{user}.{device}")
}

/// Return user id and device of the shell whose table is called `table`; otherwise `None`.
pub fn shell_of(table: &str) -> Option<(u32, &str)> {
    let (user, device) = table.strip_prefix(TABLES)?.split_once('.')?;
    let number = device.rsplit_once('-')?.1;
    number.parse::<u32>().ok()?;
    Some((user.parse().ok()?, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_its_shell() {
        let table = table_of(1000, "delay-7");
        assert_eq!(shell_of(&table), Some((1000, "delay-7")));
        for other in [
            "cellbed.forwarding",
            "cellbed.x.delay-7",
            "cellbed.1.delay",
            "filter",
            "my.1.delay-7",
        ] {
            assert_eq!(shell_of(other), None, "{other}");
        }
    }
}
