//! `cellbed-net`: the network helper as a program with file capabilities, for users authorized by an administrator.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

/// File with ids of authorized users, one per line; written by `cellbed grant USER --network`.
const USERS: &str = "/etc/cellbed/network-users";

fn main() -> ExitCode {
    let user = rustix::process::getuid();
    if !user.is_root()
        && let Err(problem) = authorise(user.as_raw())
    {
        eprintln!("cellbed-net: {problem}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--private") {
        eprintln!("cellbed-net: --private needs no helper");
        return ExitCode::FAILURE;
    }
    cellbed_nethelper::run(&arguments)
}

fn authorise(user: u32) -> Result<(), String> {
    let metadata = fs::metadata(USERS).map_err(|error| format!("cannot read {USERS}: {error}"))?;
    if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
        return Err(format!(
            "{USERS} must belong to root, and nobody else may write it"
        ));
    }
    let list =
        fs::read_to_string(USERS).map_err(|error| format!("cannot read {USERS}: {error}"))?;
    if list.lines().any(|line| line.trim().parse() == Ok(user)) {
        return Ok(());
    }
    Err(format!(
        "user {user} may not use it: an administrator allows it with `sudo cellbed grant {user} --network`"
    ))
}
