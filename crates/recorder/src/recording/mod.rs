//! A recording on disk: a journal during the recording, then Parquet tables and `recording.json`.
//!
//! The journal is written continuously: a crash loses at most the last second. [`pack`] converts it into tables, at
//! once or later.

mod description;
mod journal;
mod pack;
mod run;

pub use description::{Arrangement, Head, Heavy, Light, Role, Signal, rfc3339};
pub use journal::{Entry, JournalWriter, check_free};
pub use pack::{Packed, pack};
#[cfg(test)]
pub use run::RunRecords;
pub use run::{Collector, RunPlan};

#[cfg(test)]
mod tests;
