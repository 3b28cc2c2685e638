//! Progress shown to the user: a changing line on a terminal, plain lines in a pipe, JSON on request.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde_json::json;

use super::{say, say_event};
use crate::record::{Notice, Snapshot};
use crate::recording::Packed;
use crate::wire::Offer;
use cellbed_calibration::calibration::Limits;

/// Number of seconds per snapshot in a pipe.
const PLAIN_EVERY: u32 = 5;

/// Prints progress. Text goes to standard error, results and JSON to standard output.
pub struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    /// True if the terminal has an unfinished, changing line.
    open: bool,
    snapshots: u32,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            terminal: std::io::stderr().is_terminal(),
            open: false,
            snapshots: 0,
        }
    }

    pub fn notice(&mut self, notice: &Notice<'_>) {
        let (name, properties, text) = match notice {
            Notice::Snapshot(snapshot) => return self.snapshot(snapshot),
            Notice::Calibrating(purpose, (step, steps)) => (
                "calibrating",
                json!({"purpose": purpose.to_string(), "step": step, "steps": steps}),
                format!("calibrating, step {step} of {steps}: {purpose}"),
            ),
            Notice::Limited(Limits { span, bytes }) => {
                let (seconds, megabytes) = (span.as_secs_f64(), *bytes as f64 / 1e6);
                let properties = json!({"most_s": seconds, "most_bytes": bytes});
                let text = format!(
                    "the calibration takes at most about {seconds:.0} s and {megabytes:.0} MB"
                );
                ("calibration", properties, text)
            }
            Notice::Planned(volume) => {
                let total = volume.total();
                let text = format!(
                    "{volume}: {:.0} MB in all, {} trains",
                    total as f64 / 1e6,
                    volume.trains
                );
                ("planned", json!({"volume": volume, "bytes": total}), text)
            }
            Notice::Connected(Offer { rate_bps, .. }) => {
                let rate = *rate_bps as f64 / 1e6;
                let text = format!("connected; the server sends up to {rate} Mbit/s");
                ("connected", json!({"rate_bps": rate_bps}), text)
            }
            Notice::Silent => {
                let text = "no answer from the server; probing continues";
                ("silent", json!({}), text.into())
            }
            Notice::Resumed => ("resumed", json!({}), "the server answers again".into()),
            Notice::Stopping => {
                let text = "stopping; waiting for packets under way (Ctrl-C again: do not wait)";
                ("stopping", json!({}), text.into())
            }
            Notice::Warning(text) => {
                let properties = json!({"text": text});
                ("warning", properties, format!("warning: {text}"))
            }
        };
        if self.json {
            say_event(name, properties);
        } else if !self.quiet {
            self.close();
            eprintln!("{text}");
        }
    }

    /// Print the result.
    pub fn packed(&mut self, folder: &Path, packed: &Packed) {
        self.close();
        let seconds = packed.duration.as_secs_f64();
        if self.json {
            let (counts, warnings) = (&packed.counts, &packed.warnings);
            return say_event(
                "recorded",
                json!({"directory": folder, "duration_s": seconds, "counts": counts, "warnings": warnings}),
            );
        }
        say(&format!("{}: {seconds:.1} s", folder.display()));
        for (name, counts) in &packed.counts {
            say(&format!(
                "  {name:<15} {:>9} sent  {:>7} lost ({:.2} %)  {} duplicated  {} reordered",
                counts.sent,
                counts.lost,
                100.0 * counts.lost as f64 / counts.sent.max(1) as f64,
                counts.duplicated,
                counts.reordered
            ));
        }
        for warning in &packed.warnings {
            say(&format!("  note: {warning}"));
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        if self.json {
            return say_event("progress", snapshot);
        }
        self.snapshots += 1;
        if self.quiet || (!self.terminal && !self.snapshots.is_multiple_of(PLAIN_EVERY)) {
            return;
        }
        let line = line(snapshot);
        if self.terminal {
            eprint!("\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
            self.open = true;
        } else {
            eprintln!("{line}");
        }
    }

    /// End the changing line.
    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            eprintln!();
        }
    }
}

fn line(snapshot: &Snapshot) -> String {
    let total = snapshot.elapsed_s + snapshot.remaining_s;
    let round_trip = snapshot
        .round_trip_ms
        .map_or("–".into(), |ms| format!("{ms:.1} ms"));
    let mut line = format!(
        "{:>4.0} of {total:.0} s  light: RTT {round_trip}, {:.1} up {:.1} down  heavy: {:.1} up {:.1} down Mbit/s",
        snapshot.elapsed_s,
        snapshot.light_uplink_mbps,
        snapshot.light_downlink_mbps,
        snapshot.heavy_uplink_mbps,
        snapshot.heavy_downlink_mbps,
    );
    if snapshot.silent {
        line.push_str("  (silence)");
    }
    line
}
