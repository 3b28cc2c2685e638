//! Network namespaces of the nodes, inside one user namespace if the caller is not privileged.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space,
    unshare_unsafe,
};

use crate::error::{Error, Result, Trying};

const THREAD_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// `_IO(0xb7, 1)` of linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// `_IO('T', 227)` of linux/if_tun.h.
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// Return whether this process may create network namespaces and devices in them without a user namespace.
pub fn is_privileged() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Move this process into a new user namespace that maps the calling user and group to themselves.
///
/// The process must have one thread. Afterwards it holds all capabilities over objects created inside.
pub fn enter_user_namespace() -> Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).trying_or(|| "create a user namespace".into(), user_remedy)?;
    let write = |path: &str, text: String| {
        fs::write(path, text).trying_or(
            || format!("map the user in the new user namespace ({path})"),
            user_remedy,
        )
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Move the calling thread into a new mount namespace, from which no mount propagates.
pub fn unshare_mounts() -> Result<()> {
    unshare(UnshareFlags::NEWNS).trying(|| "create a mount namespace".into())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).trying(|| "make the mounts private".into())
}

/// Move the calling process into a UTS namespace with host name `name`.
pub fn unshare_host_name(name: &str) -> Result<()> {
    unshare(UnshareFlags::NEWUTS).trying(|| "create a UTS namespace".into())?;
    sethostname(name.as_bytes()).trying(|| format!("set the host name {name}"))
}

fn unshare(kind: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: no caller unshares the table of file descriptors: only that would make this call unsafe.
    unsafe { unshare_unsafe(kind) }
}

/// Return the remedy that allows user namespaces, by this kernel's settings.
fn user_remedy(error: &io::Error) -> String {
    let setting = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    if setting("/proc/sys/user/max_user_namespaces") == Some(0) {
        "User namespaces are switched off; allow them with `sudo sysctl -w user.max_user_namespaces=10000`".into()
    } else if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        "Unprivileged user namespaces are switched off; allow them with `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
            .into()
    } else if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        "AppArmor restricts unprivileged user namespaces; allow them with \
         `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
            .into()
    } else if error.raw_os_error() == Some(libc::ENOSPC) {
        "Too many user namespaces exist or are nested; raise user.max_user_namespaces with `sudo sysctl -w`".into()
    } else if error.raw_os_error() == Some(libc::EPERM) {
        "Something forbids user namespaces here; in a container start it with `--security-opt seccomp=unconfined`, \
         or run as root"
            .into()
    } else {
        String::new()
    }
}

/// A network namespace, alive as long as this value.
pub struct NetworkNamespace {
    descriptor: OwnedFd,
}

impl NetworkNamespace {
    /// Create a namespace with only a loopback interface, which is down.
    pub fn create() -> Result<Self> {
        in_thread(|| {
            unshare(UnshareFlags::NEWNET).trying_or(
                || "create a network namespace".into(),
                |error| match error.raw_os_error() {
                    Some(libc::ENOSPC) => {
                        "Too many exist; raise the limit with `sudo sysctl -w user.max_net_namespaces=10000`".into()
                    }
                    _ => user_remedy(error),
                },
            )?;
            Self::current()
        })
    }

    /// Return the namespace of the calling thread.
    pub fn current() -> Result<Self> {
        let file = File::open(THREAD_NAMESPACE)
            .trying(|| "open the network namespace of a thread".into())?;
        Ok(Self {
            descriptor: file.into(),
        })
    }

    /// Return the namespace of a TUN device. Errors: the caller may not administrate it.
    pub fn of_device(tun: BorrowedFd<'_>) -> Result<Self> {
        // SAFETY: the request takes no argument and returns a new descriptor or -1.
        let descriptor = unsafe { libc::ioctl(tun.as_raw_fd(), TUNGETDEVNETNS) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error())
                .trying(|| "open the namespace of a device".into());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
    }

    /// Run `work` in a thread inside this namespace. Sockets and devices it opens stay in the namespace.
    pub fn run<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + Send,
    {
        in_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Move only the calling thread into this namespace.
    pub fn enter(&self) -> Result<()> {
        // Entering needs a privilege, staying does not.
        if self.is_current() {
            return Ok(());
        }
        move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::Network))
            .trying(|| "enter a node's network namespace".into())
    }

    /// Return whether the process's user namespace owns this one: then only its administrators can change it.
    pub fn is_of_this_user_namespace(&self) -> bool {
        // SAFETY: the request takes no argument and returns a new descriptor or -1 (ioctl_nsfs(2)).
        let owner = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), NS_GET_USERNS) };
        if owner < 0 {
            return false;
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let owner = unsafe { OwnedFd::from_raw_fd(owner) };
        is_same(&owner, "/proc/self/ns/user")
    }

    fn is_current(&self) -> bool {
        is_same(&self.descriptor, THREAD_NAMESPACE)
    }

    /// Return the path at which other processes can open this namespace.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.descriptor.as_raw_fd()
        )
    }
}

/// Return whether a descriptor and a path refer to the same namespace.
fn is_same(descriptor: &OwnedFd, path: &str) -> bool {
    let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let one = rustix::fs::fstat(descriptor).map(identity);
    let other = rustix::fs::stat(path).map(identity);
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

impl From<OwnedFd> for NetworkNamespace {
    /// Wrap an open namespace; entering fails if it is not a network namespace.
    fn from(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Run `work` in a separate thread and waits: a thread with a changed namespace must not be reused.
fn in_thread<T, E>(work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
where
    T: Send,
    E: From<Error> + Send,
{
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| {
        Err(Error::ThreadEnded {
            thread: "namespace",
        }
        .into())
    })
}
