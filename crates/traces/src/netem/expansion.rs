//! The steps of a configuration, and their destination.

use serde::de;

use crate::error::{ImportError, Result as ImportResult};

/// Maximum steps of a file.
pub(super) const MOST_STEPS: u64 = 1 << 24;

/// A value that holds for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// bit/s.
    Bandwidth(f64),
    /// ns.
    Delay(i64),
}

/// Takes a step and how long it lasts, ns.
pub(super) type Take<'a> = &'a mut dyn FnMut(Step, i64) -> ImportResult<()>;

/// The destination of a file's steps.
pub(super) struct Expansion<'a> {
    take: Take<'a>,
    failure: &'a mut Option<ImportError>,
    pub(super) notes: &'a mut Vec<String>,
    steps: u64,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(
        take: Take<'a>,
        failure: &'a mut Option<ImportError>,
        notes: &'a mut Vec<String>,
    ) -> Self {
        Self {
            take,
            failure,
            notes,
            steps: 0,
        }
    }

    pub(super) fn step<E: de::Error>(&mut self, step: Step, duration_ns: i64) -> Result<(), E> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(E::custom(format!(
                "it stands for more than {MOST_STEPS} steps"
            )));
        }
        (self.take)(step, duration_ns).map_err(|error| {
            let told = error.to_string();
            *self.failure = Some(error);
            E::custom(told)
        })
    }
}
