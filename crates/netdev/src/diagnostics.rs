//! Diagnostics of a program, as lines on its standard error.

use std::io;

use tracing::Level;

/// The least level of a line, as in Python's part of cellbed; without it nothing is printed.
const VARIABLE: &str = "CELLBED_LOG";

/// Prints events of the level in `CELLBED_LOG` and above from now on: `debug`, `info`, `warning` or `error`.
pub fn print_diagnostics() {
    let level = match std::env::var(VARIABLE).as_deref() {
        Ok("debug") => Level::DEBUG,
        Ok("info") => Level::INFO,
        Ok("warning") => Level::WARN,
        Ok("error") => Level::ERROR,
        _ => return,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_writer(io::stderr);
    // A process that has a subscriber keeps it.
    let _ = lines.try_init();
}
