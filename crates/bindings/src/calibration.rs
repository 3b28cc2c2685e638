//! Calibration of links in virtual time.

use cellbed_calibration::calibration::{Calibration, Calibrator};
use cellbed_calibration::virtual_network::{VirtualNetwork, saturate};
use cellbed_calibration::workload::QueueKeeper;
use cellbed_link::{BitRate, Duration, Seed, Time};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::arrivals::invalid;
use crate::link::parse;

type Column<'py> = Bound<'py, PyArray1<i64>>;

#[pyfunction]
pub fn calibrate_virtually(
    py: Python<'_>,
    uplink: &str,
    downlink: &str,
    seed: u64,
) -> PyResult<String> {
    py.detach(|| {
        let mut network = VirtualNetwork::new(parse(uplink)?, parse(downlink)?);
        let calibration = network.calibrate(Calibrator::new(Seed(seed)));
        written(&calibration.map_err(invalid)?)
    })
}

/// Saturate one direction adaptively. Return send and arrival times of packets, ns; -1 if lost.
#[pyfunction]
pub fn saturate_virtually<'py>(
    py: Python<'py>,
    stages: &str,
    bytes: u16,
    delays_ns: (u64, u64),
    most_bps: u64,
    span_ns: u64,
) -> PyResult<(Column<'py>, Column<'py>)> {
    let (sent, arrived): (Vec<i64>, Vec<i64>) = py.detach(|| {
        let (least, most) = delays_ns;
        let [least, most, span] = [least, most, span_ns].map(Duration::from_nanos);
        let keeper = QueueKeeper::new(least, most, bytes, BitRate(most_bps), Time::ZERO);
        let packets = saturate(parse(stages)?, keeper, bytes, span);
        let stamp = |time: Time| time.as_nanos() as i64;
        PyResult::Ok(
            packets
                .into_iter()
                .map(|(sent, arrived)| (stamp(sent), arrived.map_or(-1, stamp)))
                .unzip(),
        )
    })?;
    Ok((sent.into_pyarray(py), arrived.into_pyarray(py)))
}

fn written(calibration: &Calibration) -> PyResult<String> {
    serde_json::to_string(calibration).map_err(invalid)
}
