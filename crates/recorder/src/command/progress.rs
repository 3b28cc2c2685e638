//! Progress shown to the user: a changing line on a terminal, plain lines in a pipe, JSON on request.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::say;
use crate::record::{Notice, Snapshot};
use crate::recording::Packed;

/// In a pipe, a snapshot each so many seconds.
const PLAIN_EVERY: u32 = 5;

/// Shows what happens. Text goes to standard error, results and JSON to standard output.
pub struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    /// True if a changing line stands on the terminal.
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
        match notice {
            Notice::Snapshot(snapshot) => self.snapshot(snapshot),
            Notice::Calibrating(purpose, (step, steps)) => {
                let text = format!("calibrating, step {step} of {steps}: {purpose}");
                let purpose = purpose.to_string();
                self.event(json!({"event": "calibrating", "purpose": purpose, "step": step, "steps": steps}), &text);
            }
            Notice::Connected(offer) => {
                let text = format!(
                    "connected; the server sends up to {} Mbit/s",
                    offer.rate_bps as f64 / 1e6
                );
                self.event(
                    json!({"event": "connected", "rate_bps": offer.rate_bps}),
                    &text,
                );
            }
            Notice::Silent => self.event(
                json!({"event": "silent"}),
                "no answer from the server; probing continues",
            ),
            Notice::Resumed => self.event(json!({"event": "resumed"}), "the server answers again"),
            Notice::Stopping => self.event(
                json!({"event": "stopping"}),
                "stopping; waiting for packets under way (Ctrl-C again: do not wait)",
            ),
            Notice::Warning(text) => {
                self.event(
                    json!({"event": "warning", "text": text}),
                    &format!("warning: {text}"),
                );
            }
        }
    }

    /// The result.
    pub fn packed(&mut self, folder: &Path, packed: &Packed) {
        self.close();
        let seconds = packed.duration.as_secs_f64();
        if self.json {
            say(&json!({
                "event": "recorded", "directory": folder, "duration_s": seconds,
                "counts": packed.counts, "warnings": packed.warnings,
            })
            .to_string());
            return;
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

    fn event(&mut self, value: Value, text: &str) {
        if self.json {
            say(&value.to_string());
        } else if !self.quiet {
            self.close();
            eprintln!("{text}");
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        if self.json {
            let mut value = serde_json::to_value(snapshot).unwrap_or_default();
            value["event"] = "progress".into();
            return say(&value.to_string());
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

    /// Ends the line that changes.
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
