//! The signal reported by a modem, from ModemManager's `mmcli`, where that is installed.
//!
//! It has been tried with answers of the documented form only: no machine with a modem was at hand.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use cellbed_link::Time;
use serde_json::Value;

use crate::recording::SignalSample;
use crate::socket::now;

const EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// Names of access technologies, the best first, as `mmcli` lists them.
const TECHNOLOGIES: [&str; 5] = ["5g", "lte", "umts", "cdma1x", "gsm"];

/// Queries a modem in a separate thread; without a modem it never has a sample.
pub(super) struct Modem {
    samples: Receiver<SignalSample>,
}

impl Modem {
    /// Begins to ask; times count from `zero`.
    pub(super) fn find(zero: Time) -> Self {
        let (sender, samples) = channel();
        // Without a thread there are no samples, as without a modem.
        let _ = thread::Builder::new().name("modem".into()).spawn(move || {
            // No mmcli or no modem ends it.
            while let Some(signal) = ask(&["-m", "any", "--signal-get", "-J"]) {
                let location = ask(&["-m", "any", "--location-get", "-J"]);
                let mut sample = read(&signal, location.as_ref());
                sample.at_ns = now().as_nanos() as i64 - zero.as_nanos() as i64;
                if sender.send(sample).is_err() {
                    return;
                }
                thread::sleep(EVERY);
            }
        });
        Self { samples }
    }

    /// Return the samples since the last call.
    pub(super) fn samples(&self) -> Vec<SignalSample> {
        self.samples.try_iter().collect()
    }
}

fn ask(arguments: &[&str]) -> Option<Value> {
    let output = Command::new("mmcli")
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| serde_json::from_slice(&output.stdout).ok())?
}

/// Values that the modem does not know are `--`.
fn read(signal: &Value, location: Option<&Value>) -> SignalSample {
    let number = |technology: &str, name: &str| -> Option<f64> {
        signal["modem"]["signal"][technology][name]
            .as_str()?
            .parse()
            .ok()
    };
    let technology = TECHNOLOGIES.into_iter().find(|technology| {
        number(technology, "rsrp")
            .or(number(technology, "rssi"))
            .is_some()
    });
    let of = |name| technology.and_then(|technology| number(technology, name));
    let cell = location
        .and_then(|location| location["modem"]["location"]["3gpp"]["cid"].as_str())
        .filter(|cell| *cell != "--");
    SignalSample {
        at_ns: 0,
        technology: technology.map(str::to_owned),
        cell: cell.map(str::to_owned),
        rsrp_dbm: of("rsrp"),
        rsrq_db: of("rsrq"),
        sinr_db: of("snr").or(of("s/n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_documented_form_is_understood() {
        let signal = serde_json::json!({"modem": {"signal": {
            "5g": {"error-rate": "--", "rsrp": "--", "rsrq": "--", "snr": "--"},
            "lte": {"error-rate": "--", "rsrp": "-97.00", "rsrq": "-11.00", "rssi": "-67.00", "snr": "8.40"},
            "refresh": {"rate": "5"}
        }}});
        let location = serde_json::json!({"modem": {"location": {"3gpp": {"cid": "0A1B2C03", "lac": "FFFE"}}}});
        let sample = read(&signal, Some(&location));
        assert_eq!(sample.technology.as_deref(), Some("lte"));
        assert_eq!(sample.cell.as_deref(), Some("0A1B2C03"));
        assert_eq!(
            (sample.rsrp_dbm, sample.rsrq_db, sample.sinr_db),
            (Some(-97.0), Some(-11.0), Some(8.4))
        );
        assert_eq!(read(&serde_json::json!({}), None), SignalSample::default());
    }
}
