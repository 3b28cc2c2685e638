//! Arguments of the commands, with quantities as users write them.

use std::path::PathBuf;

use cellbed_link::{BitRate, Bytes, Duration};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::recording::{Role, Signal};

const RECORD_EXAMPLES: &str = "Examples:
  Calibrate, then record for a minute, both workloads in turn over one modem:
    cellbed-recorder record vps.example:7700 --secret secret --out stairwell
  Both at once, each over a separate modem:
    cellbed-recorder record vps.example:7700 --secret secret --out drive \\
        --light-interface wwan0 --heavy-interface wwan1 --duration '10 min' \\
        --mobility driving
  Within a data plan, the calibration included:
    cellbed-recorder record vps.example:7700 --secret secret --out train --budget '200 MB'
  Trains of several lengths alone, without calibration:
    cellbed-recorder record vps.example:7700 --secret secret --out trains \\
        --only light --no-calibration --trains 25:50,1:1,5:100

Ctrl-C ends the recording in order; a second Ctrl-C does not wait for packets under way.
After a crash, `cellbed-recorder pack` completes the recording.

Exit status: 0 recorded, 1 an error, 2 wrong arguments, 130 interrupted with nothing recorded.";

const VERBS: &str = "The other end is `cellbed-recorder serve`. See also `cellbed-recorder calibrate --help`, `pack` and `secret`.";

const SERVE_EXAMPLES: &str = "Examples:
  cellbed-recorder secret secret
  cellbed-recorder serve --secret secret --listen '[::]:7700' --rate '200 Mbit/s'";

/// Records what a live network does to packets: light and heavy workloads, over UDP, and downloads by TCP, between a
/// client and a server.
#[derive(Parser, Debug)]
#[command(version, about, disable_help_subcommand = true, max_term_width = 120)]
pub struct Standalone {
    #[command(subcommand)]
    pub verb: Verb,
}

/// Record a live network: packet trains and saturation over UDP and downloads by TCP, between this client and a server.
#[derive(Parser, Debug)]
#[command(max_term_width = 120, after_help = cellbed_examples())]
pub struct Cellbed {
    #[command(flatten)]
    pub record: Record,
}

fn cellbed_examples() -> String {
    format!("{RECORD_EXAMPLES}\n\n{VERBS}")
        .replace("cellbed-recorder record", "cellbed record")
        .replace("cellbed-recorder", "cellbed record")
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Record a network.
    #[command(after_help = RECORD_EXAMPLES)]
    Record(Box<Record>),
    /// Measure the parameters of a network in about four minutes at most, and print them as JSON.
    Calibrate(Calibrate),
    /// Run the server for clients with the secret.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Complete a recording after a crash.
    Pack(Pack),
    /// Create a new secret for a server and its clients.
    Secret {
        /// File to write; it must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Address and secret of the server.
#[derive(Args, Debug, Clone)]
pub struct Reach {
    /// The server, as HOST:PORT.
    pub server: String,
    /// File with the secret shared with the server.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub secret: PathBuf,
    /// Send through this interface. Default: by the routing table.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Print one JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print only errors and the result.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Method of replay that a recording is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Regular trains alone.
    Cellreplay,
    /// Trains of many lengths and gaps alone.
    Conditional,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SaturationMethod {
    /// At a fixed rate, 25 % above the capacity of the path.
    Fixed,
    /// At a rate that keeps 0.75 to 3 s of packets queued, controlled by feedback over the other interface.
    Adaptive,
}

#[derive(Args, Debug, Clone)]
pub struct Calibrate {
    #[command(flatten)]
    pub reach: Reach,
    /// Seed of the order of trains.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug, Clone)]
pub struct Record {
    #[command(flatten)]
    pub reach: Reach,
    /// Directory of the recording, which must not exist. Default: named by the time.
    #[arg(long = "out", short = 'o', alias = "output", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Duration of the recording.
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = duration)]
    pub duration: Duration,

    /// Maximum bytes of calibration and recording together, such as "200 MB". It shortens turns of the heavy workload,
    /// then trains, then the duration.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub budget: Option<Bytes>,

    /// Interface of the light workload, control and downloads; the heavy workload runs at the same time on another one.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Arrangement",
        conflicts_with = "interface"
    )]
    pub light_interface: Option<String>,
    /// Interface of the heavy workload.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Arrangement",
        conflicts_with = "interface"
    )]
    pub heavy_interface: Option<String>,
    /// Run both workloads at once over one interface; they share its queue unless the network separates them.
    #[arg(long, help_heading = "Arrangement", conflicts_with = "only")]
    pub together: bool,
    /// Run only one of the workloads.
    #[arg(long, value_name = "WORKLOAD", help_heading = "Arrangement")]
    pub only: Option<Role>,
    /// Duration of the turns of light and heavy workload on one interface; shorter in a short recording.
    #[arg(long, value_name = "LIGHT:HEAVY", default_value = "20s:10s", value_parser = interval_pair, help_heading = "Arrangement")]
    pub turns: (Duration, Duration),

    /// Send only the trains that this method of replay needs. Default: trains for all methods, as calibrated.
    #[arg(long = "for", value_name = "METHOD", help_heading = "Light workload", conflicts_with_all = ["trains", "plan"])]
    pub method: Option<Method>,
    /// Trains of U packets answered by D, in rotation.
    #[arg(long, visible_alias = "light-train", value_name = "U:D,U:D…", value_parser = train_lengths, value_delimiter = ',', help_heading = "Light workload")]
    pub trains: Vec<(u16, u16)>,
    /// JSON file with trains, gaps and jitter, in the form of a recording's description.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Light workload", conflicts_with_all = ["trains", "gap"])]
    pub plan: Option<PathBuf>,
    /// Time from the start of a regular train to the next. Default: 50 ms, or longer if calibrated so.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Light workload")]
    pub gap: Option<Duration>,
    /// Variation of the gaps, as a share of them.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        help_heading = "Light workload"
    )]
    pub jitter: f64,

    /// Method of saturation. Adaptive needs two interfaces; a rate of 0 omits that direction.
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "fixed",
        help_heading = "Heavy workload"
    )]
    pub saturation: SaturationMethod,
    /// Saturation rate of the uplink; 0 for none. Default: 25 % above the calibrated rate.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Heavy workload")]
    pub uplink_rate: Option<BitRate>,
    /// Saturation rate of the downlink; 0 for none. Default: 25 % above the calibrated rate.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Heavy workload")]
    pub downlink_rate: Option<BitRate>,
    /// IP length of the packets of both workloads.
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(100..=1500), help_heading = "Heavy workload")]
    pub packet_bytes: u16,

    /// Sizes of the files to fetch by TCP after each run of the light workload, separated by commas.
    #[arg(long, value_name = "BYTES,BYTES…", default_value = "10 kB, 100 kB, 1 MB", value_parser = bytes, value_delimiter = ',', help_heading = "Downloads")]
    pub downloads: Vec<Bytes>,
    /// Fetch no files.
    #[arg(long, help_heading = "Downloads", conflicts_with = "downloads")]
    pub no_downloads: bool,

    /// Skip the calibration; trains and rates must be given.
    #[arg(long, help_heading = "Calibration")]
    pub no_calibration: bool,
    /// Use the calibration in this file, written by `cellbed calibrate`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Calibration", conflicts_with = "no_calibration")]
    pub calibration: Option<PathBuf>,
    /// Seed of the jitter and of the order of the calibration's trains.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        help_heading = "Calibration"
    )]
    pub seed: u64,

    #[command(flatten)]
    pub signal: Signal,
}

#[derive(Args, Debug, Clone)]
pub struct Pack {
    /// Directory of the recording.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Serve {
    /// File with the secret; create one with `secret`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub secret: PathBuf,
    /// Address to listen on, and port of UDP and TCP.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7700")]
    pub listen: std::net::SocketAddr,
    /// Listen on this interface only.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Maximum rate sent to one client.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits")]
    pub rate: Option<BitRate>,
    /// Maximum rate sent to all clients together.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits")]
    pub total_rate: Option<BitRate>,
    /// Maximum bytes of a session, both directions together.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    pub bytes: Option<Bytes>,
    /// Maximum probing time of a session.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub duration: Option<Duration>,
    /// Maximum number of sessions.
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub sessions: Option<u32>,
    /// Print one JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Parse a time: a number and a unit, by default s.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("", 1.0),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
    ];
    let seconds = quantity(
        text,
        &units,
        "a time, such as \"50 ms\", \"60 s\", \"10 min\"",
    )?;
    match Duration::from_secs_f64(seconds) {
        span if span.is_zero() => Err("it must be above 0".into()),
        span => Ok(span),
    }
}

/// Parse a rate: a number and a unit, by default Mbit/s.
fn rate(text: &str) -> Result<BitRate, String> {
    let units = [
        ("", 1e6),
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
    ];
    quantity(text, &units, "a rate, such as \"50 Mbit/s\"").map(|rate| BitRate(rate as u64))
}

/// Parse a size: a number and a unit, by default bytes.
fn bytes(text: &str) -> Result<Bytes, String> {
    let units = [
        ("", 1.0),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ];
    quantity(text, &units, "a size, such as \"1400\" or \"20 GB\"").map(|size| Bytes(size as u64))
}

/// Parse the lengths of a train and its answer, such as `25:50`.
fn train_lengths(text: &str) -> Result<(u16, u16), String> {
    let parts = text
        .split_once(':')
        .and_then(|(up, down)| Some((up.trim().parse().ok()?, down.trim().parse().ok()?)));
    match parts {
        Some((0, _)) => Err("a train has at least one packet of the client".into()),
        Some(lengths) => Ok(lengths),
        None => Err("two numbers of packets, such as 25:50 for 25 answered by 50".into()),
    }
}

/// Parse two times, such as `20s:10s`.
fn interval_pair(text: &str) -> Result<(Duration, Duration), String> {
    match text.split_once(':') {
        Some((first, second)) => Ok((duration(first)?, duration(second)?)),
        None => Err("two times, such as 20s:10s".into()),
    }
}

fn quantity(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<f64, String> {
    let text = text.trim();
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: Option<f64> = number.parse().ok();
    let factor = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .map(|(_, factor)| factor);
    match (number, factor) {
        (Some(number), Some(factor)) => Ok(number * factor),
        _ => Err(format!("it must be {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_understood_with_and_without_units() {
        assert_eq!(duration("50 ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert_eq!(rate("2.5"), Ok(BitRate(2_500_000)));
        assert_eq!(rate("1 Gbit/s"), Ok(BitRate(1_000_000_000)));
        assert_eq!(bytes("20 GB"), Ok(Bytes(20_000_000_000)));
        assert_eq!(train_lengths("25:50"), Ok((25, 50)));
        assert_eq!(
            interval_pair("20s:500ms"),
            Ok((Duration::from_secs(20), Duration::from_millis(500)))
        );
        for wrong in ["", "5 parsecs", "-3 s", "0", "1e999 s x"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(train_lengths("0:5").is_err() && train_lengths("5").is_err());
    }
}
