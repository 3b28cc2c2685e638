//! Calibration of links in virtual time.

use cellbed_link::Seed;
use cellbed_recorder::calibration::Calibrator;
use cellbed_recorder::virtual_network::VirtualNetwork;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::link::parse;

/// A whole calibration as JSON.
#[pyfunction]
pub fn calibrate_virtually(
    py: Python<'_>,
    uplink: &str,
    downlink: &str,
    seed: u64,
) -> PyResult<String> {
    py.detach(|| {
        let mut network = VirtualNetwork::new(parse(uplink)?, parse(downlink)?);
        let refused = |error: String| PyValueError::new_err(error);
        let calibration = network
            .calibrate(Calibrator::new(Seed(seed)))
            .map_err(|error| refused(error.to_string()))?;
        serde_json::to_string(&calibration).map_err(|error| refused(error.to_string()))
    })
}
