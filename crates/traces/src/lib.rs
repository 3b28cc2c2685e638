//! Captures and Mahimahi's traces as series over time in Parquet, read in one pass or two and in little memory; and the
//! writer of series, for these and for the readers in Python.
//!
//! Each reader takes any source of bytes and a [`Target`] that its series go to, so that it runs on files and on a
//! fuzzer's data. A source is never trusted: malformed data is an [`ImportError`] that names the place.
#![forbid(unsafe_code)]

pub mod capture;
mod error;
mod mahimahi;
mod request;
mod series;
mod target;
mod watched;

pub use error::{ImportError, Place, Result};
pub use mahimahi::mahimahi;
pub use request::{Request, import};
pub use series::{Opportunity, Rate, RoundTrip, Row, Table};
pub use target::{Content, Folder, Imported, Nowhere, Part, Target, Written};
pub use watched::Watched;
