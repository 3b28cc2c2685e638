//! What the commands understand.

use std::path::PathBuf;

use cellbed_link::{BitRate, Bytes, Duration};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use super::quantity::{bytes, duration, interval_pair, rate, train_lengths};

const RECORD_EXAMPLES: &str = "Examples:
  Calibrate, then record for a minute, both workloads in turn over one modem:
    cellbed-recorder record vps.example:7700 --secret secret --out stairwell
  Both at once, each over a modem of its own:
    cellbed-recorder record vps.example:7700 --secret secret --out drive \\
        --light-interface wwan0 --heavy-interface wwan1 --duration '10 min' \\
        --gap '100 ms' --mobility driving
  Trains of several lengths alone, without calibration:
    cellbed-recorder record vps.example:7700 --secret secret --out trains \\
        --only light --no-calibration --trains 25:50,1:1,5:100

Ctrl-C ends the recording properly; a second one does not wait for packets under way.
`cellbed-recorder pack` makes a recording of what a crash leaves in the directory.

Exit status: 0 recorded, 1 an error, 2 wrong arguments, 130 interrupted with nothing recorded.";

const VERBS: &str = "The other end is `cellbed-recorder serve`. See also `cellbed-recorder calibrate --help`, `pack` and `secret`.";

const SERVE_EXAMPLES: &str = "Examples:
  cellbed-recorder secret secret
  cellbed-recorder serve --secret secret --listen '[::]:7700' --rate '200 Mbit/s'";

/// Records what a live network does to packets: light and heavy workloads, over UDP, between a client and a server.
#[derive(Parser, Debug)]
#[command(version, about, disable_help_subcommand = true, max_term_width = 120)]
pub struct Standalone {
    #[command(subcommand)]
    pub verb: Verb,
}

/// Record a live network: packet trains and saturation over UDP, between this client and a server.
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
    /// Measure the parameters of a network, in less than five minutes.
    Calibrate(Calibrate),
    /// Be the other end: answer those who know the secret.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Make a recording of what a crash has left.
    Pack(Pack),
    /// Make a new secret for a server and its clients.
    Secret {
        /// The file to write; it must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print completions for a shell, to be read by it at its start.
    Completions { shell: clap_complete::Shell },
}

/// How to reach the server.
#[derive(Args, Debug, Clone)]
pub struct Reach {
    /// The server, as HOST:PORT.
    pub server: String,
    /// The file with the secret that the server has.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub secret: PathBuf,
    /// Send by this interface, whatever the routes say.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors and the result.
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Packet trains.
    Light,
    /// Saturation.
    Heavy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SaturationMethod {
    /// At one rate, 25 % over what the path carries.
    Fixed,
    /// At a rate that keeps packets waiting for 0.75 to 3 s, chosen by what is told over the other interface.
    Adaptive,
}

#[derive(Args, Debug, Clone)]
pub struct Record {
    #[command(flatten)]
    pub reach: Reach,
    /// The recording's directory, which must not exist; named by the time if not given.
    #[arg(long = "out", short = 'o', alias = "output", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// How long to record.
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = duration)]
    pub duration: Duration,

    /// The light workload by this interface, and the heavy one at the same time by another.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Arrangement",
        conflicts_with = "interface"
    )]
    pub light_interface: Option<String>,
    /// See --light-interface.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Arrangement",
        conflicts_with = "interface"
    )]
    pub heavy_interface: Option<String>,
    /// Both workloads at once over one way; they meet in its queue, unless the network keeps them apart.
    #[arg(long, help_heading = "Arrangement", conflicts_with = "only")]
    pub together: bool,
    /// Only one of the workloads.
    #[arg(long, value_name = "WORKLOAD", help_heading = "Arrangement")]
    pub only: Option<Only>,
    /// How long light and heavy workload have their turns where both share one way; less in a recording too short for both.
    #[arg(long, value_name = "LIGHT:HEAVY", default_value = "20s:10s", value_parser = interval_pair, help_heading = "Arrangement")]
    pub turns: (Duration, Duration),

    /// Trains of U packets answered by D; from the calibration if not given.
    #[arg(long, value_name = "U:D", value_parser = train_lengths, help_heading = "Light workload", conflicts_with = "trains")]
    pub light_train: Option<(u16, u16)>,
    /// Several of them, in rotation.
    #[arg(long, value_name = "U:D,U:D…", value_parser = train_lengths, value_delimiter = ',', help_heading = "Light workload")]
    pub trains: Vec<(u16, u16)>,
    /// Trains, gaps and jitter as a recording's description has them, from a JSON file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Light workload", conflicts_with_all = ["light_train", "trains", "gap"])]
    pub plan: Option<PathBuf>,
    /// From the start of a train to that of the next: 50 ms, or what the calibration asks for if that is more. 100 ms when moving.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Light workload")]
    pub gap: Option<Duration>,
    /// How far gaps vary, as a share of them.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        help_heading = "Light workload"
    )]
    pub jitter: f64,

    /// How to saturate. Adaptive needs two interfaces, and queues that are 3 s long; a rate of 0 leaves that direction out.
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "fixed",
        help_heading = "Heavy workload"
    )]
    pub saturation: SaturationMethod,
    /// Saturate the uplink at this rate; 25 % more than the calibration measured if not given. 0 for not at all.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Heavy workload")]
    pub uplink_rate: Option<BitRate>,
    /// The same of the downlink.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Heavy workload")]
    pub downlink_rate: Option<BitRate>,
    /// IP length of the packets of both workloads.
    #[arg(long, value_name = "BYTES", default_value = "1400", value_parser = bytes, help_heading = "Heavy workload")]
    pub packet_bytes: Bytes,

    /// Do not calibrate before; trains and rates must be given.
    #[arg(long, help_heading = "Calibration")]
    pub no_calibration: bool,
    /// Take a calibration from a file that `calibrate` has written.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Calibration", conflicts_with = "no_calibration")]
    pub calibration: Option<PathBuf>,
    /// Of the jitter, and of the order of a calibration's trains.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        help_heading = "Calibration"
    )]
    pub seed: u64,

    #[command(flatten)]
    pub signal: SignalArguments,
}

/// What the user knows of the network.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Of the network, kept with the recording")]
pub struct SignalArguments {
    /// Name of the operator.
    #[arg(long, value_name = "TEXT")]
    pub operator: Option<String>,
    /// Such as lte, 5g-nsa, 5g-sa.
    #[arg(long, value_name = "TEXT")]
    pub technology: Option<String>,
    /// Identity of the cell.
    #[arg(long, value_name = "TEXT")]
    pub cell: Option<String>,
    /// Reference signal received power, dBm.
    #[arg(long, value_name = "DBM", allow_negative_numbers = true)]
    pub rsrp: Option<f64>,
    /// Where it is.
    #[arg(long, value_name = "TEXT")]
    pub place: Option<String>,
    /// Such as stationary, walking, driving.
    #[arg(long, value_name = "TEXT")]
    pub mobility: Option<String>,
    /// Anything else.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

#[derive(Args, Debug, Clone)]
pub struct Calibrate {
    #[command(flatten)]
    pub reach: Reach,
    /// Write the parameters to this file, as JSON; else they are printed.
    #[arg(long = "out", short = 'o', alias = "output", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Of the order of trains.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug, Clone)]
pub struct Pack {
    /// The recording's directory.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug, Clone)]
pub struct Serve {
    /// The file with the secret; `secret` makes one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub secret: PathBuf,
    /// Address and UDP port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7700")]
    pub listen: std::net::SocketAddr,
    /// Listen at this interface only.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// What a client may be sent at most.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits")]
    pub rate: Option<BitRate>,
    /// What all clients together may be sent at most.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits")]
    pub total_rate: Option<BitRate>,
    /// How many bytes a session may take, both ways together.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    pub bytes: Option<Bytes>,
    /// How long a session may probe.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub duration: Option<Duration>,
    /// How many sessions there may be.
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub sessions: Option<u32>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
}
