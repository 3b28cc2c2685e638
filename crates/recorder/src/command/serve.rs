//! `serve`: the other end.

use serde_json::json;

use super::arguments::Serve;
use super::say;
use crate::error::Result;
use crate::secure::{Secret, random_bytes};
use crate::server::{Limits, ServeConfig, Serving, Statistics};
use crate::socket::{Interrupts, Local};
use cellbed_link::Duration;

/// Interval of a server's status lines.
const STATISTICS: Duration = Duration::from_secs(10);

/// Serves until it is interrupted.
pub fn serve(arguments: &Serve) -> Result<()> {
    let interrupts = Interrupts::catch();
    let secret = Secret::read(&arguments.secret)?;
    let config = ServeConfig {
        local: Local {
            address: arguments.listen,
            interface: arguments.interface.clone(),
        },
        limits: limits(arguments),
        statistics_every: STATISTICS,
    };
    let mut serving = Serving::bind(&config, &secret, &random_bytes()?)?;
    let local = serving.local();
    if arguments.json {
        say(&json!({"event": "listening", "address": local.to_string()}).to_string());
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
    if as_json {
        let value = json!({
            "event": "statistics", "sessions": statistics.sessions, "counters": statistics.counters,
            "receiving_bps": statistics.receiving_bps, "sending_bps": statistics.sending_bps,
            "overflows": statistics.overflows, "unsendable": statistics.unsendable,
        });
        return say(&value.to_string());
    }
    say(&statistics.to_string());
}
