//! `record` and `calibrate`: options to a recording, or to the parameters of a network.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cellbed_link::{BitRate, Duration, Seed};
use serde::de::DeserializeOwned;

use super::arguments::{Calibrate, Reach, Record, SaturationMethod};
use super::progress::Output;
use super::say;
use crate::error::{Error, Result, Trying};
use crate::record::{Access, Notice, Plan, Recorder};
use crate::recording::{Arrangement, Head, Heavy, Light, Role, check_free, rfc3339};
use crate::secure::{Secret, hexadecimal, random_bytes};
use crate::socket::wall_clock;
use cellbed_calibration::calibration::{Calibration, Calibrator};
use cellbed_calibration::plan::{Both, Saturation, Train, TrainPlan, Workload};
use cellbed_calibration::workload::FixedRateSaturator;

/// Gap of light trains when stationary (Sentosa et al., "CellReplay", NSDI 2025, §4.2).
const GAP: Duration = Duration::from_millis(50);

/// Queueing delay of packets of an adaptive saturation (Winstein et al., "Stochastic Forecasts Achieve High Throughput
/// and Low Delay over Cellular Networks", NSDI 2013, §4.1).
const ADAPTIVE: Saturation = Saturation::Adaptive {
    least_delay_ns: 750_000_000,
    most_delay_ns: 3_000_000_000,
};

pub fn record(arguments: &Record) -> Result<()> {
    check(arguments)?;
    let started = rfc3339(wall_clock());
    let folder = arguments
        .output
        .clone()
        .unwrap_or_else(|| named_by_time(&started));
    check_free(&folder)?; // fail early: calibration takes minutes
    let access = access(arguments)?;
    let mut output = Output::new(arguments.reach.json, arguments.reach.quiet);
    let mut watch = |notice: Notice<'_>| output.notice(&notice);
    let mut recorder = Recorder::connect(access)?;
    let calibration = match &arguments.calibration {
        Some(file) => Some(read(file, "calibration")?),
        // Even if trains and rates are given: the replay needs further parameters.
        None if !arguments.no_calibration => {
            let calibrator = Calibrator::new(Seed(arguments.seed));
            Some(recorder.calibrate(calibrator, &mut watch)?)
        }
        None => None,
    };
    let trains = match &arguments.plan {
        Some(file) => read(file, "plan of trains")?,
        None => trains(arguments, calibration.as_ref()),
    };
    let plan = plan(arguments, trains, calibration.as_ref());
    let head = head(arguments, started, &plan, calibration)?;
    let packed = recorder.record(&plan, head, &folder, &mut watch)?;
    output.packed(&folder, &packed);
    Ok(())
}

/// Return the server's address, preferably IPv4: mobile networks with IPv6 alone translate it.
fn resolve(server: &str) -> Result<SocketAddr> {
    let wrong = |problem: String| Error::Usage(format!("the server {server:?} {problem}"));
    if !server.contains(':') {
        return Err(wrong(
            "has no port: write HOST:PORT, such as vps.example:7700".into(),
        ));
    }
    let found: Vec<SocketAddr> = server
        .to_socket_addrs()
        .map_err(|error| wrong(format!("cannot be found: {error}")))?
        .collect();
    let four = found.iter().find(|address| address.is_ipv4());
    four.or(found.first())
        .copied()
        .ok_or_else(|| wrong("has no address".into()))
}

/// The only access to a server.
fn single_access(reach: &Reach) -> Result<Access> {
    Ok(Access {
        server: resolve(&reach.server)?,
        secret: Secret::read(&reach.secret)?,
        first: reach.interface.clone(),
        second: None,
    })
}

fn access(arguments: &Record) -> Result<Access> {
    let mut access = single_access(&arguments.reach)?;
    let heavy = arguments.heavy_interface.clone();
    let first = match arguments.only {
        Some(Role::Heavy) => heavy.clone(),
        _ => arguments.light_interface.clone(),
    };
    access.first = access.first.or(first);
    access.second = heavy.or(arguments.reach.interface.clone());
    Ok(access)
}

/// Minimum duration for turns: pauses in shorter recordings exceed the turns.
const LEAST_IN_TURNS: Duration = Duration::from_secs(3);

/// Check for contradictory options.
fn check(arguments: &Record) -> Result<()> {
    let light = arguments.only != Some(Role::Heavy);
    let heavy = arguments.only != Some(Role::Light);
    let interfaces = [&arguments.light_interface, &arguments.heavy_interface];
    let two = interfaces.iter().any(|interface| interface.is_some());
    let adaptive = arguments.saturation == SaturationMethod::Adaptive;
    let alone = arguments.no_calibration;
    let rates = [arguments.uplink_rate, arguments.downlink_rate];
    let problems = [
        (
            !(0.0..1.0).contains(&arguments.jitter),
            "--jitter is a share of the gap: at least 0, and less than 1",
        ),
        (
            light && heavy && two && interfaces.iter().any(|interface| interface.is_none()),
            "--light-interface and --heavy-interface go together; with one interface for both it is --interface",
        ),
        (
            light && heavy && !two && !arguments.together && arguments.duration < LEAST_IN_TURNS,
            "--duration: two workloads in turn take at least 3 s; or only one of them: --only light",
        ),
        (
            alone && light && !has_trains(arguments),
            "without calibration the trains must be given: --light-train 25:50, or --trains",
        ),
        (
            adaptive && !(light && heavy && two),
            "--saturation adaptive needs a second device to measure the queue of the first: give both --light-interface and --heavy-interface, and not --only",
        ),
        (
            adaptive && rates.iter().flatten().any(|rate| rate.0 > 0),
            "--saturation adaptive chooses the rates; --uplink-rate and --downlink-rate can only be 0 (no saturation)",
        ),
        (
            alone && !adaptive && heavy && rates.contains(&None),
            "without calibration the rates must be given: --uplink-rate and --downlink-rate, 25 % above the network's capacity",
        ),
    ];
    let problem = problems.into_iter().find(|(applies, _)| *applies);
    problem.map_or(Ok(()), |(_, text)| Err(Error::Usage(text.into())))
}

fn has_trains(arguments: &Record) -> bool {
    arguments.light_train.is_some() || !arguments.trains.is_empty() || arguments.plan.is_some()
}

/// Read and decode a JSON file.
fn read<T: DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    let wrong = |problem: String| Error::Usage(format!("{}: {problem}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| wrong(format!("no {what}: {error}")))
}

fn named_by_time(started: &str) -> PathBuf {
    let digits: String = started
        .chars()
        .take(19)
        .map(|c| if c == ':' { '-' } else { c })
        .collect();
    format!("recording-{digits}").into()
}

fn trains(arguments: &Record, calibration: Option<&Calibration>) -> TrainPlan {
    let bytes = arguments.packet_bytes;
    let lengths = match (&arguments.light_train, calibration) {
        (Some(lengths), _) => vec![*lengths],
        (None, _) if !arguments.trains.is_empty() => arguments.trains.clone(),
        (None, Some(found)) => vec![(
            found.directions.uplink.light_train(),
            found.directions.downlink.light_train(),
        )],
        (None, None) => Vec::new(), // only without a light workload
    };
    let least = calibration.map_or(0, |found| {
        let directions = &found.directions;
        let gaps = lengths.iter().map(|&(up, down)| {
            let uplink = directions.uplink.light_gap_ns(up);
            uplink.max(directions.downlink.light_gap_ns(down))
        });
        gaps.max().unwrap_or(0)
    });
    let trains = lengths.into_iter();
    let trains = trains.map(|(up, down)| Train::new((up, bytes), (down, bytes)));
    let gap = arguments
        .gap
        .unwrap_or(GAP.max(Duration::from_nanos(least)));
    TrainPlan {
        rotation: trains.collect(),
        gap_ns: gap.as_nanos(),
        jitter: arguments.jitter,
        count: None,
        seed: arguments.seed,
    }
}

fn plan(arguments: &Record, trains: TrainPlan, calibration: Option<&Calibration>) -> Plan {
    let bytes = arguments.packet_bytes;
    let given = Both {
        uplink: arguments.uplink_rate,
        downlink: arguments.downlink_rate,
    };
    let ways = Both::from_fn(|way| {
        let given = *given.of(way);
        if arguments.saturation == SaturationMethod::Adaptive {
            return given.is_none_or(|rate| rate.0 > 0).then_some(ADAPTIVE);
        }
        let measured = calibration.map(|found| found.directions.of(way).saturated_bps);
        let rate = given.or(measured.map(|bps| FixedRateSaturator::rate_for(BitRate(bps))))?;
        (rate.0 > 0).then_some(Saturation::Fixed { rate_bps: rate.0 })
    });
    let heavy = Workload::Saturation { ways, bytes };
    let two = arguments.light_interface.is_some() || arguments.together || arguments.only.is_some();
    Plan {
        light: (arguments.only != Some(Role::Heavy)).then_some(Workload::Trains(trains)),
        heavy: (arguments.only != Some(Role::Light)).then_some(heavy),
        arrangement: if two {
            Arrangement::Together
        } else {
            Arrangement::Alternating
        },
        turns: arguments.turns,
        duration: arguments.duration,
    }
}

fn head(
    arguments: &Record,
    started: String,
    plan: &Plan,
    calibration: Option<Calibration>,
) -> Result<Head> {
    let id: [u8; 8] = random_bytes()?;
    let interface = |own: &Option<String>| own.clone().or(arguments.reach.interface.clone());
    Ok(Head {
        id: hexadecimal(&id),
        started,
        zero_ns: 0,
        packet_bytes: arguments.packet_bytes,
        arrangement: plan.arrangement,
        light: plan.light.as_ref().map(|workload| Light {
            interface: interface(&arguments.light_interface),
            plan: match workload {
                Workload::Trains(plan) => Some(plan.clone()),
                _ => None,
            },
        }),
        heavy: plan.heavy.as_ref().map(|workload| Heavy {
            interface: interface(&arguments.heavy_interface),
            ways: workload.saturation(),
        }),
        calibration,
        signal: arguments.signal.clone(),
    })
}

/// Print a calibration for the user.
fn print(calibration: &Calibration, json: bool) {
    if json {
        return say(&serde_json::to_string(calibration).unwrap_or_default());
    }
    for sentence in &calibration.verdict {
        say(sentence);
    }
}

/// Calibrate and report the progress.
pub fn measure(reach: &Reach, seed: u64) -> Result<Calibration> {
    let mut output = Output::new(reach.json, reach.quiet);
    let mut recorder = Recorder::connect(single_access(reach)?)?;
    let calibrator = Calibrator::new(Seed(seed));
    recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))
}

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    let what = |path: &Path| format!("write {}", path.display());
    if let Some(path) = arguments.output.as_deref().filter(|path| path.is_dir()) {
        // Fail before minutes of calibration.
        return Ok(Err(io::Error::from(io::ErrorKind::IsADirectory)).trying(|| what(path))?);
    }
    let calibration = measure(&arguments.reach, arguments.seed)?;
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(&calibration).unwrap_or_default() + "\n";
        write_whole(path, text.as_bytes()).trying(|| what(path))?;
    }
    print(&calibration, arguments.reach.json);
    Ok(())
}

/// Writes a file completely or not at all. A device or a pipe is written in place; a pipe needs a reader.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if place.exists() && !place.is_file() {
        let waiting_for_no_reader = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        return OpenOptions::new()
            .write(true)
            .custom_flags(waiting_for_no_reader)
            .open(place)?
            .write_all(content);
    }
    let mut partial = place.clone().into_os_string();
    partial.push(".partial");
    let written = File::create(&partial)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&partial, &place));
    written.inspect_err(|_| drop(fs::remove_file(&partial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_pipe_needs_a_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", at("full")).expect("a link");
        std::os::unix::fs::symlink(at("far"), at("link")).expect("a link");
        fs::create_dir(at("folder")).expect("a folder");
        fs::write(at("far"), "old").expect("a file");
        let pipe = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(pipe.expect("mkfifo").success());
        for (name, code) in [("full", 28), ("pipe", 6), ("folder", 21), ("none/x", 2)] {
            let error = write_whole(&at(name), b"new").expect_err(name);
            assert_eq!(error.raw_os_error(), Some(code), "{name}: {error}");
        }
        write_whole(&at("link"), b"new").expect("written");
        assert_eq!(fs::read(at("far")).expect("read"), b"new");
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|it| it.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["far", "folder", "full", "link", "pipe"]);
    }
}
