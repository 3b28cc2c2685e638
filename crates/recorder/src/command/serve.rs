//! `serve`: the other end.

use serde_json::json;

use super::arguments::Serve;
use super::{say, say_event};
use crate::error::Result;
use crate::secure::Secret;
use crate::server::{Limits, Serving, Statistics};
use crate::socket::{Interrupts, Local};

/// Serves until it is interrupted.
pub fn serve(arguments: &Serve) -> Result<()> {
    let interrupts = Interrupts::catch();
    let secret = Secret::read(&arguments.secret)?;
    let local = Local {
        address: arguments.listen,
        interface: arguments.interface.clone(),
    };
    let mut serving = Serving::bind(&local, &secret, limits(arguments))?;
    let local = serving.local();
    if arguments.json {
        say_event("listening", json!({"address": local.to_string()}));
    } else {
        say(&format!("listening on {local} (UDP); stop with Ctrl-C"));
    }
    let mut printed = None;
    let last = serving.run(
        |statistics| {
            // Who has nothing to do has nothing to say.
            if printed.replace(statistics.counters) != Some(statistics.counters) {
                print(statistics, arguments.json);
            }
        },
        || interrupts.count() > 0,
    )?;
    print(&last, arguments.json);
    Ok(())
}

fn limits(arguments: &Serve) -> Limits {
    let usual = Limits::default();
    Limits {
        rate: arguments.rate.unwrap_or(usual.rate),
        total_rate: arguments.total_rate.unwrap_or(usual.total_rate),
        bytes: arguments.bytes.unwrap_or(usual.bytes),
        duration: arguments.duration.unwrap_or(usual.duration),
        sessions: arguments.sessions.unwrap_or(usual.sessions),
        ..usual
    }
}

fn print(statistics: &Statistics, as_json: bool) {
    match as_json {
        true => say_event("statistics", statistics),
        false => say(&statistics.to_string()),
    }
}
