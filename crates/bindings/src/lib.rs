//! The Python module `cellbed._core`: thin, without logic. `_core.pyi` describes it to Python's tools.
#![forbid(unsafe_code)]

mod arrivals;
mod calibration;
mod cell;
mod columns;
mod crossings;
mod imports;
mod legs;
mod link;
mod outside;
mod path;
mod positions;
mod trace;
mod virtual_network;

use std::ffi::OsString;
use std::io;

use cellbed_emulator::{Entry, Error, KernelError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::calibration::{calibrate_virtually, fit_plan, light_doubts, saturate_virtually};
    #[pymodule_export]
    use super::cell::share_cell;
    #[pymodule_export]
    use super::crossings::PacketGroups;
    #[pymodule_export]
    use super::imports::import_series;
    #[pymodule_export]
    use super::link::{Direction, stage_schema};
    #[pymodule_export]
    use super::outside::Saturator;
    #[pymodule_export]
    use super::path::{Path, congestion_controls, load_law};
    #[pymodule_export]
    use super::positions::{toml_longest_key, toml_positions};
    #[pymodule_export]
    use super::trace::{
        Trace, TraceFormatError, parse_latency_offsets, parse_light_rows, parse_trace,
    };
    #[pymodule_export]
    use super::virtual_network::VirtualNetwork;
    #[pymodule_export]
    use super::{emulate, enter, network_helper};
}

#[pyfunction]
fn emulate(py: Python<'_>) -> PyResult<()> {
    match py.detach(cellbed_emulator::emulate) {
        0 => Ok(()),
        status => Err(pyo3::exceptions::PySystemExit::new_err(status)),
    }
}

/// Return whether a network helper call succeeds.
#[pyfunction]
fn network_helper(py: Python<'_>, arguments: Vec<OsString>) -> bool {
    py.detach(|| cellbed_nethelper::run(&arguments)) == std::process::ExitCode::SUCCESS
}

#[pyfunction]
fn enter(entry: &str) -> PyResult<()> {
    let entry: Entry = link::from_json("the entry", entry)?;
    cellbed_emulator::enter(&entry).map_err(|error| os_error(&error))
}

/// Return an `OSError` with our message and the kernel's number, by which Python selects the subclass.
fn os_error(error: &Error) -> PyErr {
    match error {
        Error::Kernel(KernelError::System { source, .. }) => {
            let number = source
                .raw_os_error()
                .or((source.kind() == io::ErrorKind::NotFound).then_some(2));
            match number {
                Some(number) => PyOSError::new_err((number, error.to_string())),
                None => PyOSError::new_err(error.to_string()),
            }
        }
        other => PyOSError::new_err(other.to_string()),
    }
}
