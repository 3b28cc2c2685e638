//! `enter`: runs a command of the caller inside the network of its shell, in the initial user namespace, where programs
//! such as sudo(8) work.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use cellbed_netdev::{Netlink, NetworkNamespace, Trying, take_inherited, unshare_mounts};
use rustix::fs::{Mode, OFlags};
use rustix::mount::mount_bind;
use rustix::process::{Signal, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use serde_json::json;

use crate::error::{Error, Result};
use crate::request::Enter;
use crate::rules::alias;

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Sockets over which the C library queries a service of the host, bypassing the link (nss-resolve(8), nscd(8)).
const SHORTCUTS: [&str; 3] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
];

/// Replace this process by the command; return only on failure.
pub fn enter(request: &Enter) -> ExitCode {
    let report = match take_inherited(request.report) {
        Ok(descriptor) => File::from(descriptor),
        Err(error) => {
            eprintln!("cellbed-net: {error}");
            return ExitCode::FAILURE;
        }
    };
    let error = match execute(request) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let text = json!({"status": error.status(), "message": error.to_string()});
    // The caller may have gone.
    let _ = (&report).write_all(text.to_string().as_bytes());
    ExitCode::from(error.status())
}

fn execute(request: &Enter) -> Result<Infallible> {
    let caller = getppid();
    let namespace = NetworkNamespace::from(take_inherited(request.namespace)?);
    let expected = alias(getuid().as_raw());
    // In a network namespace of the caller's user namespace, the caller could set the alias.
    let is_the_callers = namespace.is_of_this_user_namespace()
        && namespace.run(|| {
            let mut netlink = Netlink::open()?;
            let mut named =
                |device| matches!(netlink.alias(device), Ok(Some(it)) if it == expected);
            Ok::<_, Error>(named("ingress") || named("cellbed0"))
        })?;
    if !is_the_callers {
        return Error::refused("the network namespace belongs to no shell of this user");
    }
    namespace.enter()?;
    unshare_mounts()?;
    let shortcuts = SHORTCUTS.into_iter();
    for path in shortcuts.filter(|path| Path::new(path).exists()) {
        mount_bind("/dev/null", path).trying(|| format!("close {path}"))?;
    }
    if let Some(path) = &request.resolv_conf {
        bind_resolv_conf(path)?;
    }
    drop_capabilities()?;
    // Last, because a change of credentials clears the signal.
    set_parent_process_death_signal(Some(Signal::KILL))
        .trying(|| "ask to die with the parent process".into())?;
    if getppid() != caller {
        return Error::refused("the caller has ended");
    }
    let (program, arguments) = (&request.command[0], &request.command[1..]);
    Err(Error::Command {
        command: program.to_string_lossy().into_owned(),
        source: Command::new(program).args(arguments).exec(),
    })
}

/// Mount a readable file of the caller over `/etc/resolv.conf`.
fn bind_resolv_conf(path: &Path) -> Result<()> {
    let what = || format!("mount {} over {RESOLV_CONF}", path.display());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Opened after entering the new mount namespace: only its mounts can be bound.
    let file = rustix::fs::open(path, flags, Mode::empty()).trying(what)?;
    let file = File::from(file);
    let metadata = file.metadata().trying(what)?;
    if !metadata.is_file() || metadata.uid() != getuid().as_raw() {
        let path = path.display();
        return Error::refused(format!("{path} is not a regular file of this user"));
    }
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(mount_bind(source, RESOLV_CONF).trying(what)?)
}

fn drop_capabilities() -> Result<()> {
    if getuid().is_root() {
        return Ok(());
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none).trying(|| "drop the capabilities".into())?)
}
