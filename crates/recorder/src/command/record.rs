//! `record`: options to a recording.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use cellbed_link::{BitRate, Duration, Seed};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::arguments::{Method, Record, SaturationMethod};
use super::progress::Output;
use crate::error::{Error, Result};
use crate::record::{Access, Notice, Plan, Recorder, Volume};
use crate::recording::{Arrangement, Head, Heavy, Light, Role, check_free, rfc3339};
use crate::secure::{Secret, hexadecimal, random_bytes};
use crate::socket::wall_clock;
use cellbed_calibration::calibration::{
    Calibration, Calibrator, Limits, add_regular, fit, regular,
};
use cellbed_calibration::plan::{Both, Saturation, Train, TrainPlan};
use cellbed_calibration::workload::FixedRateSaturator;

/// Gap of light trains when stationary (Sentosa et al., "CellReplay", NSDI 2025, §4.2).
const GAP: Duration = Duration::from_millis(50);

/// Trains for all that a replay can learn, made by `conditional_plan` of the Python package (`scripts/reference.py`).
const PROBES: &str = include_str!("probes.json");

/// Maximum share of a budget for the calibration.
const CALIBRATION_SHARE: u64 = 3;

/// Queueing delay of packets of an adaptive saturation (Winstein et al., "Stochastic Forecasts Achieve High Throughput
/// and Low Delay over Cellular Networks", NSDI 2013, §4.1).
const ADAPTIVE: Saturation = Saturation::Adaptive {
    least_delay_ns: 750_000_000,
    most_delay_ns: 3_000_000_000,
};

pub fn record(arguments: &Record) -> Result<()> {
    check(arguments)?;
    let started = rfc3339(wall_clock());
    let named_by_time = || format!("recording-{:.19}", started.replace(':', "-")).into();
    let folder: PathBuf = arguments.output.clone().unwrap_or_else(named_by_time);
    check_free(&folder)?; // fail early: calibration takes minutes
    let reach = &arguments.reach;
    let heavy = arguments.heavy_interface.as_ref();
    let first = match arguments.only {
        Some(Role::Heavy) => heavy,
        _ => arguments.light_interface.as_ref(),
    };
    let mut access = access(&reach.server, &reach.secret, reach.interface.clone())?;
    access.first = access.first.or(first.cloned());
    access.second = access.second.or(heavy.cloned());
    let mut output = Output::new(reach.json, reach.quiet);
    let mut watch = |notice: Notice<'_>| output.notice(&notice);
    let mut recorder = Recorder::connect(access)?;
    let budget = arguments.budget.map(|budget| budget.0);
    let calibration: Option<Calibration> = match &arguments.calibration {
        Some(file) => Some(read(file, "calibration")?),
        // Even if trains and rates are given: the replay needs further parameters.
        None if !arguments.no_calibration => {
            let usual = Limits::default();
            let bytes = budget.map_or(usual.bytes, |all| usual.bytes.min(all / CALIBRATION_SHARE));
            let calibrator = Calibrator::within(Limits { bytes, ..usual }, Seed(arguments.seed));
            Some(recorder.calibrate(calibrator, &mut watch)?)
        }
        None => None,
    };
    let used = calibration
        .as_ref()
        .filter(|_| arguments.calibration.is_none());
    let used = used.map_or(0, |calibration| calibration.bytes);
    let trains = light_plan(arguments, calibration.as_ref())?;
    // Trains or gaps that the user gives stay as they are.
    let fixed = arguments.plan.is_some() || arguments.gap.is_some();
    let fitted = |share| match &calibration {
        Some(network) if !fixed => fit(&trains, network, share),
        _ => trains.clone(),
    };
    let mut plan = plan(arguments, fitted(1.0), calibration.as_ref());
    if let Some(budget) = budget {
        Volume::fit(&mut plan, fitted, budget, used, calibration.as_ref())?;
    }
    watch(Notice::Planned(&Volume::new(
        &plan,
        used,
        calibration.as_ref(),
    )));
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

/// Return the access to a server over one interface.
pub fn access(server: &str, secret: &Path, interface: Option<String>) -> Result<Access> {
    Ok(Access {
        server: resolve(server)?,
        secret: Secret::read(secret)?,
        first: interface.clone(),
        second: interface,
    })
}

/// Minimum duration for turns: pauses in shorter recordings exceed the turns.
const LEAST_IN_TURNS: Duration = Duration::from_secs(3);

/// Maximum size of a file, bytes, as servers allow by default.
const MOST_DOWNLOADED: u64 = 100_000_000;

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
            arguments
                .downloads
                .iter()
                .any(|size| !(1..=MOST_DOWNLOADED).contains(&size.0)),
            "--downloads: a file has at least 1 byte, and at most 100 MB",
        ),
        (
            alone && light && arguments.trains.is_empty() && arguments.plan.is_none(),
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

/// Read and decode a JSON file.
fn read<T: DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    let wrong = |problem: String| Error::Usage(format!("{}: {problem}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let value =
        serde_json::from_slice(&text).and_then(|value| serde_json::from_value(whole(value)));
    value.map_err(|error| wrong(format!("no {what}: {error}")))
}

/// Convert whole numbers with a decimal point, as other programs write them, to integers.
fn whole(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(whole).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, whole(value)))
            .collect(),
        Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            let float = number
                .as_f64()
                .filter(|it| it.fract() == 0.0 && it.abs() < 1e15);
            float.map_or(Value::Number(number), |float| (float as i64).into())
        }
        other => other,
    }
}

/// Return the trains of the light workload, before they are fitted to the network.
fn light_plan(arguments: &Record, calibration: Option<&Calibration>) -> Result<TrainPlan> {
    let bytes = arguments.packet_bytes;
    let gap = arguments.gap.unwrap_or(GAP).as_nanos();
    let given = arguments.trains.iter();
    let given: Vec<Train> = given
        .map(|&(up, down)| Train::new((up, bytes), (down, bytes)))
        .collect();
    let rotation = |rotation| TrainPlan {
        rotation,
        gap_ns: gap,
        jitter: arguments.jitter,
        count: None,
        seed: arguments.seed,
    };
    let probes = || -> Result<TrainPlan> {
        let probes = serde_json::from_str(PROBES);
        let probes: TrainPlan = probes.map_err(|error| Error::Failed(error.to_string()))?;
        Ok(TrainPlan {
            seed: arguments.seed,
            ..probes
        })
    };
    Ok(match (&arguments.plan, calibration) {
        (Some(file), _) => read(file, "plan of trains")?,
        // Without a calibration trains are given, or there is no light workload.
        (None, None) => rotation(given),
        (None, Some(_)) if !given.is_empty() => rotation(given),
        (None, Some(found)) => {
            let regular = regular(found, bytes, gap);
            match arguments.method {
                Some(Method::Cellreplay) => rotation(vec![regular]),
                Some(Method::Conditional) => probes()?,
                None => add_regular(&probes()?, regular),
            }
        }
    })
}

fn plan(arguments: &Record, trains: TrainPlan, calibration: Option<&Calibration>) -> Plan {
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
    let two = arguments.light_interface.is_some() || arguments.together || arguments.only.is_some();
    let fetches = !arguments.no_downloads && arguments.only != Some(Role::Heavy);
    let sizes = arguments.downloads.iter().filter(|_| fetches);
    Plan {
        downloads: sizes.map(|size| size.0).collect(),
        light: (arguments.only != Some(Role::Heavy)).then_some(trains),
        heavy: (arguments.only != Some(Role::Light)).then_some(ways),
        packet_bytes: arguments.packet_bytes,
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
        packet_bytes: arguments.packet_bytes,
        arrangement: plan.arrangement,
        light: plan.light.as_ref().map(|trains| Light {
            interface: interface(&arguments.light_interface),
            plan: Some(trains.clone()),
        }),
        heavy: plan.heavy.map(|ways| Heavy {
            interface: interface(&arguments.heavy_interface),
            ways,
        }),
        calibration,
        signal: arguments.signal.clone(),
    })
}
