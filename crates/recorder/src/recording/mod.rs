//! A recording on disk: a journal while it is made, Parquet tables and `recording.json` when it is done.
//!
//! The journal is written as things happen, so that a crash loses the last second at most; [`pack`] makes the tables of
//! it, now or later.

mod description;
mod journal;
mod pack;
mod run;

pub use description::{Arrangement, Head, Heavy, Light, Signal, rfc3339};
pub use journal::{Entry, JournalWriter, check_free};
pub use pack::{Packed, pack};
#[cfg(test)]
pub use run::RunRecords;
pub use run::{Collector, RunPlan};

#[cfg(test)]
mod tests;
