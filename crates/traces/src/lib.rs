//! Captures and Mahimahi's traces as series over time in Parquet, read in one pass or two and in little memory.
//!
//! A source is never trusted: malformed data is an [`ImportError`] that names the place.
#![forbid(unsafe_code)]

pub mod capture;
mod error;
mod mahimahi;
mod request;
mod series;
mod watched;

pub use error::{ImportError, Place, Result};
pub use mahimahi::mahimahi;
pub use request::{Request, import};
pub use series::{Imported, Part, Written};
pub use watched::Watched;
