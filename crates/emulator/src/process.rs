//! Process attributes of the emulator: it dies with its parent, and ignores Ctrl-C.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::set_current_timer_slack;

use cellbed_link::Duration;

use crate::error::{Result, Trying};
use crate::lateness::Account;

/// Prepare the process: end with its parent, ignore SIGINT, open as many files as the user may.
pub fn prepare_process() -> Result<()> {
    die_with_parent()?;
    // SAFETY: SIG_IGN is not our function: no handler of ours can interrupt the program.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // A refusal matters later, and only in a graph of hundreds of nodes.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files stays {:?}: {error}", limit.current);
    }
    Ok(())
}

/// Let the kernel send SIGKILL to this process when the thread that started it ends.
pub fn die_with_parent() -> Result<()> {
    let result = set_parent_process_death_signal(Some(Signal::KILL));
    Ok(result.trying(|| "ask to die with the parent process".into())?)
}

/// Let sleeps of the calling thread end as precisely as the kernel can.
pub fn sleep_precisely() {
    if let Err(error) = set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::warn!("sleeps end up to 50 µs late: {error}");
    }
}

/// Give the calling thread priority over ordinary ones (`SCHED_FIFO`), if the user may. Return whether it has.
///
/// On a busy machine, the thread then wakes up within tens of microseconds, not after another program's time slice. The
/// thread must sleep whenever it is idle.
pub fn request_real_time() -> bool {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is a valid structure that outlives the call, and 0 is the calling thread.
    let status = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const priority,
        )
    };
    if status != 0 {
        let error = std::io::Error::last_os_error();
        tracing::info!("no real-time scheduling, the thread runs as an ordinary one: {error}");
    }
    status == 0
}

/// Return a function that reads the calling thread's times; they stay zero where the kernel does not count them.
pub fn thread_accounts() -> impl Fn() -> Account {
    let file = File::open("/proc/thread-self/schedstat");
    move || {
        let mut bytes = [0; 64];
        let length = file
            .as_ref()
            .map_or(0, |it| it.read_at(&mut bytes, 0).unwrap_or(0));
        let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
        let mut times = text
            .split_whitespace()
            .map(|it| Duration::from_nanos(it.parse().unwrap_or(0)));
        Account {
            ran: times.next().unwrap_or_default(),
            waited: times.next().unwrap_or_default(),
        }
    }
}

/// End the process at once, from any thread, without destructors or exit handlers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` ends the process and touches none of its memory.
    unsafe { libc::_exit(status) }
}

/// Return the bytes of memory available to this process: the minimum of the memory of machine or container and the
/// limit of addresses (`ulimit -v`). If these cannot be read, return a cautious guess.
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    // Control group roots as seen in a container, versions 2 and 1. "max" or a missing file means no limit.
    let container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let container = container.iter().filter_map(|path| {
        let limit = std::fs::read_to_string(path).ok()?;
        limit.trim().parse().ok()
    });
    let addresses = getrlimit(Resource::As).current;
    let limits = container.chain(addresses).chain([machine]);
    limits.filter(|it| *it > 0).min().unwrap_or(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_has_an_account() {
        let account = thread_accounts();
        let before = account();
        let after = (0..1_000_000)
            .map(|_| account())
            .find(|it| it.ran > before.ran);
        assert!(after.is_some_and(|it| it.waited >= before.waited));
    }
}
