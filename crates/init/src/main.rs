//! `cellbed-init`: a statically linked program that every container node has in addition to its image.
//!
//! * `hold`: the node's first process. Prints `ready`, reaps orphans, and ends with its standard input. Then the kernel
//!   ends all processes in the node's process namespace: none outlives a killed supervisor.
//! * `exec COMMAND…`: executes COMMAND, which leads a session and ends with its parent.
//! * `cpu COUNT`, `memory BYTES`: prints `ready`, waits for a line, then occupies processors or touches memory, to
//!   test the node's limits.
#![forbid(unsafe_code)]

use std::env;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, setsid, wait};

/// Maximum time that an orphan stays a zombie.
const REAPED_AFTER: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Exit statuses of a shell for a command that cannot be executed, or is not found.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const PAGE: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let number = || arguments.get(1)?.to_str()?.parse::<usize>().ok();
    match arguments.first().and_then(|first| first.to_str()) {
        Some("hold") => hold(),
        Some("exec") if arguments.len() > 1 => {
            let mut command = Command::new(&arguments[1]);
            command.args(&arguments[2..]);
            exec(&mut command)
        }
        Some("cpu") => number().map_or_else(usage, occupy),
        Some("memory") => number().map_or_else(usage, touch),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cellbed-init hold | exec COMMAND… | cpu COUNT | memory BYTES");
    ExitCode::from(2)
}

fn hold() -> ExitCode {
    say_ready();
    let stdin = io::stdin();
    loop {
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        let readable = poll(&mut watched, Some(&REAPED_AFTER)).unwrap_or(0);
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if readable > 0 && stdin.read_line(&mut String::new()).unwrap_or(0) == 0 {
            return ExitCode::SUCCESS;
        }
    }
}

fn exec(command: &mut Command) -> ExitCode {
    // The runtime leaves this process in an ended process's session. A new session makes its process group killable.
    let _ = setsid();
    // The parent is the runtime's process, which ends with the supervisor.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("cannot ask to end with the parent: {error}");
        return ExitCode::FAILURE;
    }
    let error = command.exec();
    eprintln!("cannot run {}: {error}", command.get_program().display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    })
}

fn occupy(count: usize) -> ExitCode {
    wait_for_line();
    let spin = || loop {
        black_box(0);
    };
    for _ in 1..count {
        thread::spawn(spin);
    }
    spin()
}

fn touch(bytes: usize) -> ExitCode {
    wait_for_line();
    let mut memory = vec![0_u8; bytes];
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    black_box(memory);
    ExitCode::SUCCESS
}

fn wait_for_line() {
    say_ready();
    let _ = io::stdin().read_line(&mut String::new());
}

fn say_ready() {
    println!("ready");
    let _ = io::stdout().flush();
}
