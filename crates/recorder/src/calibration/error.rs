//! Why a calibration cannot continue.

use thiserror::Error;

use super::Purpose;
use crate::packet::Way;

/// Why a calibration cannot continue.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CalibrationError {
    /// Nothing came through at all.
    #[error(
        "nothing arrived {way} ({purpose}): none of {sent} packets. Is the server running, and does UDP of 1400 bytes pass both ways?"
    )]
    Nothing {
        /// The direction.
        way: Way,
        /// What for.
        purpose: Purpose,
        /// How many were sent.
        sent: usize,
    },
    /// Too few trains could be used.
    #[error(
        "too many packets were lost {way}: of {sent} {what} only {usable} could be used, {needed} are needed. Move to a better signal, \
         or calibrate again when the cell is less busy"
    )]
    Lost {
        /// The direction.
        way: Way,
        /// Which trains.
        what: String,
        /// How many were sent.
        sent: usize,
        /// Of how many enough arrived.
        usable: usize,
        /// How many there must be.
        needed: usize,
    },
    /// The caller left before the end.
    #[error("the calibration is not finished: {next} is missing. Run `cellbed calibrate` again")]
    Unfinished {
        /// The experiment that was not made.
        next: Purpose,
    },
}
