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
        /// Purpose of the experiment.
        purpose: Purpose,
        /// Number of packets sent.
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
        /// Description of the trains.
        what: String,
        /// Number of trains sent.
        sent: usize,
        /// Of how many enough arrived.
        usable: usize,
        /// Number of trains required.
        needed: usize,
    },
    /// Packets were lost although the network had hardly any load.
    #[error(
        "{lost} of {sent} single packets were lost {way}, more than 1 %: a light workload would record losses that no load has caused. \
         Move to a better signal, or remove what loses packets, such as a loss or a tiny queue of an emulated link. To record such a \
         network all the same: --no-calibration with --light-train, --gap, --uplink-rate and --downlink-rate"
    )]
    Lossy {
        /// The direction.
        way: Way,
        /// Number of packets sent.
        sent: usize,
        /// Number of packets lost.
        lost: usize,
    },
    /// The caller left before the end.
    #[error("the calibration is not finished: {next} is missing. Run `cellbed calibrate` again")]
    Unfinished {
        /// The experiment that was not made.
        next: Purpose,
    },
}
