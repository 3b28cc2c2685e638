//! Calibration of links in virtual time.

use cellbed_calibration::calibration::{
    self, Calibration, Calibrator, PACKET_BYTES, add_regular, doubts, fit,
};
use cellbed_calibration::plan::{Both, PacketRecord, TrainPlan};
use cellbed_calibration::virtual_network::{VirtualNetwork, saturate};
use cellbed_calibration::workload::QueueKeeper;
use cellbed_link::{BitRate, Duration, Seed, Time};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::arrivals::invalid;
use crate::link::{from_json, parse};

type Column<'py> = Bound<'py, PyArray1<i64>>;
type Packets<'py> = [PyReadonlyArray1<'py, i64>; 5];

#[pyfunction]
#[pyo3(signature = (uplink, downlink, seed, outside=None))]
pub fn calibrate_virtually(
    py: Python<'_>,
    uplink: &str,
    downlink: &str,
    seed: u64,
    outside: Option<Py<PyAny>>,
) -> PyResult<String> {
    use crate::outside::OutsideObject;

    let outside = outside.map(OutsideObject::new);
    py.detach(|| {
        let network = cellbed_virtual::Network::new(parse(uplink)?, parse(downlink)?);
        let mut network = VirtualNetwork::of(OutsideObject::join(outside.as_ref(), network));
        let calibration = network.calibrate(Calibrator::new(Seed(seed)));
        OutsideObject::check(outside.as_ref())?;
        written(&calibration.map_err(invalid)?)
    })
}

/// Fit a plan of trains to a calibration, all as JSON. With `regular`, regular trains are added.
#[pyfunction]
pub fn fit_plan(plan: &str, calibration: &str, regular: bool) -> PyResult<String> {
    let plan: TrainPlan = from_json("the plan", plan)?;
    let found: Calibration = from_json("the calibration", calibration)?;
    let plan = match regular {
        true => add_regular(
            &plan,
            calibration::regular(&found, PACKET_BYTES, plan.gap_ns),
        ),
        false => plan,
    };
    serde_json::to_string(&fit(&plan, &found, 1.0)).map_err(invalid)
}

/// Return why the light workload of a recording was not light. light, heavy: of the uplink and the downlink, each with
/// the columns train, index, bytes, sent_ns and arrived_ns (-1: lost).
#[pyfunction]
pub fn light_doubts(light: [Packets<'_>; 2], heavy: [Packets<'_>; 2]) -> PyResult<Vec<String>> {
    let records = |[up, down]: [Packets<'_>; 2]| PyResult::Ok([records(&up)?, records(&down)?]);
    let ([up, down], [heavy_up, heavy_down]) = (records(light)?, records(heavy)?);
    let both = |uplink, downlink| Both { uplink, downlink };
    Ok(doubts(
        both(&up[..], &down[..]),
        both(&heavy_up[..], &heavy_down[..]),
    ))
}

fn records(columns: &Packets<'_>) -> PyResult<Vec<PacketRecord>> {
    let columns = columns.iter().map(|it| it.as_slice());
    let columns: Vec<&[i64]> = columns.collect::<Result<_, _>>()?;
    let rows = columns.iter().map(|column| column.len()).min();
    let known = |time: i64| Some(time).filter(|time| *time >= 0);
    let record = |row: usize| PacketRecord {
        train: columns[0][row] as u32,
        index: columns[1][row] as u32,
        bytes: columns[2][row] as u16,
        sent_ns: known(columns[3][row]),
        arrived_ns: known(columns[4][row]),
        copies: u8::from(columns[4][row] >= 0),
    };
    Ok((0..rows.unwrap_or(0)).map(record).collect())
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
