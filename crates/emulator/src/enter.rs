//! Entry of a program into a node: called between `fork` and `exec` in the child.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_bind_recursive};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, capabilities,
    configure_capability_in_ambient_set, move_into_link_name_space, set_capabilities,
};
use serde::Deserialize;

use crate::error::{Result, Trying};
use crate::process::die_with_parent;

/// Node and privileges of a program, also as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path of the user namespace, such as `/proc/PID/ns/user`; `None` to stay in the caller's.
    pub user_namespace: Option<String>,
    /// Path of the network namespace.
    pub network_namespace: String,
    /// Path of the mount namespace; `None` to stay in the caller's.
    pub mount_namespace: Option<String>,
    /// A folder, and the bytes of an in-memory file system mounted over it, in a separate mount namespace of the
    /// program.
    pub disk: Option<(String, u64)>,
    /// Pairs (source, target): files and folders bind-mounted over others, with the mounts below them, in a separate
    /// mount namespace of the program.
    pub binds: Vec<(String, String)>,
    /// `cgroup.procs` or `tasks` files of the control groups to join.
    pub cgroups: Vec<String>,
    /// Host name of the program, in a separate UTS namespace; `None` keeps the caller's.
    pub host_name: Option<String>,
    /// True if the program keeps its capabilities in the user namespace after `exec`.
    pub keep_capabilities: bool,
    /// True if the program keeps those over the network.
    pub keep_network_capabilities: bool,
}

/// Move the calling process, which must have one thread, into a node.
///
/// Control groups come first, while the caller may still write their files. All namespaces are opened before the first
/// is entered: `/proc` paths of the emulator may not be readable from inside.
pub fn enter(entry: &Entry) -> Result<()> {
    for path in &entry.cgroups {
        fs::write(path, "0")
            .trying_or(|| format!("join the control group {path}"), cgroup_remedy)?;
    }
    let user = entry.user_namespace.as_deref().map(Namespace::open);
    let network = Namespace::open(&entry.network_namespace)?;
    let mounts = entry.mount_namespace.as_deref().map(Namespace::open);
    let (user, mounts) = (user.transpose()?, mounts.transpose()?);
    if let Some(user) = user {
        user.enter("user", LinkNameSpaceType::User)?;
    }
    network.enter("network", LinkNameSpaceType::Network)?;
    if let Some(mounts) = mounts {
        let folder = env::current_dir().trying(|| "find the working folder".into())?;
        mounts.enter("mount", LinkNameSpaceType::Mount)?;
        // Entering has moved this process to the root folder.
        env::set_current_dir(&folder).trying(|| format!("return to {}", folder.display()))?;
    }
    if let Some(name) = &entry.host_name {
        cellbed_netdev::unshare_host_name(name)?;
    }
    if !entry.binds.is_empty() || entry.disk.is_some() {
        cellbed_netdev::unshare_mounts()?;
    }
    bind(&entry.binds)?;
    if let Some((folder, bytes)) = &entry.disk {
        mount_disk(folder, *bytes)?;
    }
    if entry.keep_capabilities {
        keep_capabilities(CapabilitySet::all())?;
    } else if entry.keep_network_capabilities && entry.user_namespace.is_some() {
        keep_capabilities(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)?;
    }
    // Last, because a change of credentials clears the setting.
    die_with_parent()
}

/// An open namespace and its path.
struct Namespace<'a>(&'a str, fs::File);

impl<'a> Namespace<'a> {
    fn open(path: &'a str) -> Result<Self> {
        let opened = fs::File::open(path).trying_or(
            || format!("open {path}"),
            |error| match error.kind() {
                io::ErrorKind::NotFound => "The emulator that held this namespace has ended".into(),
                _ => String::new(),
            },
        );
        Ok(Self(path, opened?))
    }

    fn enter(&self, what: &str, kind: LinkNameSpaceType) -> Result<()> {
        let entered = move_into_link_name_space(self.1.as_fd(), Some(kind));
        Ok(entered.trying(|| format!("enter the {what} namespace {}", self.0))?)
    }
}

fn cgroup_remedy(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "This user may not move processes into it: run as root, or let systemd delegate control groups to this user".into()
        }
        _ => String::new(),
    }
}

fn bind(binds: &[(String, String)]) -> Result<()> {
    for (source, target) in binds {
        for path in [source, target] {
            if !Path::new(path).exists() {
                Err(io::Error::from(io::ErrorKind::NotFound))
                    .trying(|| format!("mount {source} over {target}: {path}"))?;
            }
        }
        mount_bind_recursive(source, target).trying(|| format!("mount {source} over {target}"))?;
    }
    Ok(())
}

fn mount_disk(folder: &str, bytes: u64) -> Result<()> {
    let options = CString::new(format!("size={bytes},mode=755")).expect("no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("cellbed", folder, "tmpfs", flags, options.as_c_str());
    Ok(mounted.trying(|| format!("mount a file system of {bytes} bytes over {folder}"))?)
}

/// Raise the permitted ones of some capabilities into the ambient set, which survives `exec` of an ordinary program.
fn keep_capabilities(kept: CapabilitySet) -> Result<()> {
    let what = || "keep the capabilities of the user namespace".to_string();
    let kept = capabilities(None).trying(what)?.permitted & kept;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: kept,
    };
    set_capabilities(None, sets).trying(what)?;
    for (_, capability) in kept.iter_names() {
        configure_capability_in_ambient_set(capability, true).trying(what)?;
    }
    Ok(())
}
