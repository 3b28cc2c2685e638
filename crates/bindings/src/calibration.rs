//! Calibration of a network in virtual time.

use cellbed_link::Seed;
use cellbed_recorder::calibration::Calibrator;
use cellbed_recorder::virtual_network::VirtualNetwork;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::link::parse;

/// Calibrates a network of two directions, each a list of stages as the emulator's configuration has them, in JSON; the result as JSON.
#[pyfunction]
pub fn calibrate(py: Python<'_>, uplink: &str, downlink: &str, seed: u64) -> PyResult<String> {
    let refuse = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let mut network = VirtualNetwork::new(parse(uplink)?, parse(downlink)?);
    let found = py.detach(|| network.calibrate(Calibrator::new(Seed(seed))));
    let calibration = found.map_err(|error| refuse(&error))?;
    serde_json::to_string(&calibration).map_err(|error| refuse(&error))
}
