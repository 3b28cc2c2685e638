//! Output during a recording.

use std::path::Path;

use cellbed_link::{Duration, Time};

use super::live::Live;
use super::paths::Name;
use super::{Notice, Watch};
use crate::client::Event;
use crate::error::Result;
use crate::plan::{Role, Workload};
use crate::recording::{Entry, Head, JournalWriter, RunPlan};

const FLUSH: Duration = Duration::from_millis(200);
const SYNC: Duration = Duration::from_secs(1);

/// Files written during a recording.
pub(super) struct Writing {
    journal: JournalWriter,
    live: Live,
    flushed: Time,
    synced: Time,
    shown: Time,
    overflows: [u64; 2],
}

impl Writing {
    /// Into the new directory `folder`, from `zero` on.
    pub(super) fn begin(folder: &Path, head: &Head, zero: Time) -> Result<Self> {
        Ok(Self {
            journal: JournalWriter::create(folder, head)?,
            live: Live::new(zero),
            flushed: zero,
            synced: zero,
            shown: zero,
            overflows: [0; 2],
        })
    }

    /// A run is asked for.
    pub(super) fn plan(&mut self, number: u32, role: Role, workload: &Workload) -> Result<()> {
        let plan = RunPlan::new(number, role, workload);
        self.journal.add(&Entry::Run(plan))?;
        self.live.plan(number, role);
        Ok(())
    }

    /// A path has learnt something.
    pub(super) fn take(&mut self, event: Event) -> Result<()> {
        self.live.take(&event);
        self.journal.add(&Entry::Event(event))
    }

    /// So many packets of a path were lost by this machine so far.
    pub(super) fn overflowed(&mut self, name: Name, count: u64) -> Result<()> {
        let before = &mut self.overflows[name as usize];
        let more = count.saturating_sub(std::mem::replace(before, count));
        if more > 0 {
            self.journal.add(&Entry::Overflows(more))?;
        }
        Ok(())
    }

    /// Flushes and shows what is due.
    pub(super) fn keep_up(&mut self, now: Time, end: Time, watch: Watch<'_>) -> Result<()> {
        if now.since(self.flushed) >= FLUSH {
            self.flushed = now;
            self.journal.flush()?;
        }
        if now.since(self.synced) >= SYNC {
            self.synced = now;
            self.journal.sync()?;
        }
        if now.since(self.shown) >= Duration::from_secs(1) {
            self.shown = now;
            watch(Notice::Snapshot(&self.live.snapshot(now, end)));
        }
        Ok(())
    }

    /// Ends it; what was written can be packed.
    pub(super) fn end(mut self) -> Result<()> {
        self.journal.flush()
    }
}
