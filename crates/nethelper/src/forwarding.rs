//! State shared by the shells of one network namespace: the lock, packet forwarding, remains of killed helpers.
//!
//! There is no file. The lock is on a setting of the namespace. The values from before the first shell are comments in
//! a table of nft(8), which only a network administrator can write. Table and settings end with the namespace.
//!
//! A caller may stop or kill its helper at any moment. Therefore a device exists only while its table does: the table
//! is created first and removed last. Only the holder of the lock removes tables of other shells; only network
//! administrators can hold the lock.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use cellbed_netdev::{Netlink, Trying};
use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::nft;
use crate::rules::{parse_alias, shell_of, table_of};

const TABLE: &str = "cellbed.forwarding";
const IPV4: &str = "ipv4/ip_forward";
const IPV6: &str = "ipv6/conf/all/forwarding";
/// A setting of each network namespace that only its network administrators may open, even for reading. With a file
/// that others can lock, they could block all helpers.
const LOCK: &str = "/proc/sys/net/ipv4/tcp_fastopen_key";
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Addresses of the inner ends of all shells.
const SHELLS: &str = "{ 100.64.0.0/24, 100.127.0.0/16 }";
const SHELLS_IPV6: &str = "fd63:656c:6c62:fc00::/54";

/// Excludes other helpers of this network namespace while the value lives.
pub struct Lock(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Lock {
    /// Wait until no other helper holds the lock.
    pub fn take() -> Result<Self> {
        let what = || "lock the network namespace".into();
        let file = File::open(LOCK).trying(what)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let holder = holder(&file).unwrap_or_else(|| "PID".into());
                    return Error::refused(format!(
                        "another network helper, process {holder}, has held the lock for {} s; if it is stopped, an \
                         administrator ends it with `kill -9 {holder}`",
                        LOCK_PATIENCE.as_secs()
                    ));
                }
                Err(error) => return Ok(Err(error).trying(what)?),
            }
        }
    }
}

/// Return the process that holds the lock on a file (proc_locks(5)).
fn holder(file: &File) -> Option<String> {
    let stat = fstat(file).ok()?;
    let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
    let name = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let held = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&name.as_str());
        held.then(|| words[4].to_owned())
    })
}

/// A shell's table. Its number (handle), unlike its name, is never used again.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    handle: u64,
}

/// List the tables of all shells.
pub fn tables() -> Result<Vec<Table>> {
    let listed = nft::list(&["list", "tables"], "table")?;
    Ok(listed
        .iter()
        .filter_map(|table| {
            let name = table["name"].as_str()?.to_owned();
            shell_of(&name)?;
            let handle = table["handle"].as_u64()?;
            Some(Table { name, handle })
        })
        .collect())
}

/// List the tables of living shells, after removing remains of dead shells.
pub fn live_tables(lock: &Lock) -> Result<Vec<Table>> {
    let (living, dead) = shells(lock)?;
    for table in &dead {
        tracing::info!("removing {}: its shell has ended", table.name);
        remove(table, true)?;
    }
    Ok(living)
}

/// List the tables of living shells, and of dead ones, whose device is gone.
///
/// First removes devices of shells without a table, and devices made persistent by their user: no helper does that.
fn shells(_lock: &Lock) -> Result<(Vec<Table>, Vec<Table>)> {
    let mut netlink = Netlink::open()?;
    let tables = tables()?;
    let devices = fs::read_to_string("/proc/thread-self/net/dev");
    let devices = devices.trying(|| "list the network devices".into())?;
    for line in devices.lines() {
        let name = line.split(':').next().unwrap_or_default().trim();
        let Some(user) = parse_alias(netlink.alias(name).ok().flatten().as_deref()) else {
            continue;
        };
        let table = table_of(user, name);
        // The inner device of an enclosing shell also has the alias, but no number in its name.
        let is_outer = shell_of(&table).is_some();
        let is_stray = || !tables.iter().any(|it| it.name == table);
        if is_outer && (is_stray() || netlink.is_persistent(name)?) {
            tracing::info!("removing the device {name}: no shell has it");
            let index = netlink.index(name)?;
            netlink.delete(index)?;
        }
    }
    let (mut living, mut dead) = (Vec::new(), Vec::new());
    for table in tables {
        let device = shell_of(&table.name).map(|(_, device)| device);
        match netlink.find(device.unwrap_or_default())? {
            Some(_) => living.push(table),
            None => dead.push(table),
        }
    }
    Ok((living, dead))
}

/// Remove a shell's table and its rules in chains of other programs.
pub fn remove(table: &Table, in_other_chains: bool) -> Result<()> {
    let mut text = format!("delete table inet handle {}\n", table.handle);
    if in_other_chains {
        for rule in nft::list(&["list", "ruleset"], "rule")? {
            if rule["comment"] == table.name.as_str() {
                let place = ["family", "table", "chain"].map(|key| rule[key].as_str());
                let place = place.map(|name| name.unwrap_or("?")).join(" ");
                text += &format!("delete rule {place} handle {}\n", rule["handle"]);
            }
        }
    }
    match nft::load("removes a shell's rules", &text) {
        // Another process has removed the table meanwhile.
        Err(_) if !tables()?.iter().any(|it| it.handle == table.handle) => Ok(()),
        other => other,
    }
}

fn exists(table: &str) -> Result<bool> {
    let tables = nft::list(&["list", "tables"], "table")?;
    Ok(tables.iter().any(|it| it["name"] == table))
}

/// Switch forwarding on, optionally for IPv6, and record the changes.
///
/// If the machine did not forward before, it forwards for shells only.
pub fn hold(_lock: &Lock, ipv6: bool) -> Result<()> {
    let mut wanted = Vec::new();
    if ipv6 {
        // accept_ra is set to 2 before forwarding. With another value, devices with forwarding ignore router
        // advertisements, and drop the routes learnt from them (ip-sysctl.rst).
        for device in devices_of_ipv6() {
            wanted.push((format!("ipv6/conf/{device}/accept_ra"), "1", "2"));
        }
        wanted.push((IPV6.to_owned(), "0", "1"));
    }
    wanted.push((IPV4.to_owned(), "0", "1"));
    wanted.retain(|(name, off, _)| read(name).as_deref() == Some(*off));
    if wanted.is_empty() {
        return Ok(());
    }
    let mut text = format!("add table inet {TABLE}\nadd chain inet {TABLE} before\n");
    for (name, before, _) in &wanted {
        text += &format!("add rule inet {TABLE} before counter comment \"{name}={before}\"\n");
        let guard = match name.as_str() {
            IPV4 => format!("ip saddr != {SHELLS} ip daddr != {SHELLS}"),
            IPV6 => format!("ip6 saddr != {SHELLS_IPV6} ip6 daddr != {SHELLS_IPV6}"),
            _ => continue,
        };
        text += &format!(
            "add chain inet {TABLE} guard {{ type filter hook forward priority -160; policy accept; }}\n\
             add rule inet {TABLE} guard {guard} drop\n"
        );
    }
    nft::load("notes the forwarding", &text)?;
    for (name, _, value) in &wanted {
        write(name, value)?;
    }
    Ok(())
}

/// Restore forwarding when no shell is left.
pub fn release(lock: &Lock) -> Result<()> {
    if !live_tables(lock)?.is_empty() || !exists(TABLE)? {
        return Ok(());
    }
    let rules = nft::list(&["list", "table", "inet", TABLE], "rule")?;
    // A device accepts router advertisements only with forwarding off: restore in reverse order of setting.
    for (name, value) in rules.iter().rev().filter_map(noted) {
        write(&name, &value)?;
    }
    nft::load("removes a table", &format!("delete table inet {TABLE}\n"))
}

/// Remove remains of killed helpers in this network namespace, and print a line for each.
pub fn clean() -> Result<()> {
    nft::share_capability()?;
    let lock = Lock::take()?;
    let (_, dead) = shells(&lock)?;
    release(&lock)?;
    for (_, device) in dead.iter().filter_map(|table| shell_of(&table.name)) {
        println!("removed the packet filter rules of {device}, a shell that was killed");
    }
    Ok(())
}

/// Return a setting and its previous value, from a rule's comment.
fn noted(rule: &Value) -> Option<(String, String)> {
    let (name, value) = rule["comment"].as_str()?.split_once('=')?;
    let device = name
        .strip_prefix("ipv6/conf/")
        .and_then(|rest| rest.strip_suffix("/accept_ra"));
    let ours = [IPV4, IPV6].contains(&name) || device.is_some_and(is_plain);
    (ours && matches!(value, "0" | "1")).then(|| (name.to_owned(), value.to_owned()))
}

/// List devices with a folder of settings, without folders that are not devices.
fn devices_of_ipv6() -> Vec<String> {
    let entries = fs::read_dir("/proc/sys/net/ipv6/conf")
        .into_iter()
        .flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| is_plain(name) && !["all", "default", "lo"].contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

/// Return whether a device's name is safe in a path and in a quoted string.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !matches!(name, "." | "..")
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte))
}

fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// Write a setting; a device's setting may have disappeared with the device.
fn write(name: &str, value: &str) -> Result<()> {
    match fs::write(format!("/proc/sys/net/{name}"), value) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Ok(other.trying(|| format!("set net.{}", name.replace('/', ".")))?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_settings_of_ours_are_restored() {
        let comment = |text: &str| noted(&json!({"comment": text}));
        assert!(comment("ipv4/ip_forward=0").is_some());
        assert!(comment("ipv6/conf/eth0.5/accept_ra=1").is_some());
        for other in [
            "ipv4/tcp_rmem=0",
            "ipv4/ip_forward=2",
            "ipv6/conf/../../x/accept_ra=1",
            "ipv6/conf/../accept_ra=1",
            "x",
        ] {
            assert_eq!(comment(other), None, "{other}");
        }
    }
}
