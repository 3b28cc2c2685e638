//! Flows: requests of applications, and their outcome.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::units::{FlowId, HostId, Picos};

/// A transfer that an application requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host that has the bytes.
    pub source: HostId,
    /// The host that receives the bytes.
    pub destination: HostId,
    /// The mobile user behind the destination, a central unit.
    pub user: Option<u32>,
    /// Bytes of the application.
    pub bytes: u64,
    /// Start of the flow.
    pub start: Picos,
}

/// A finished flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the flow.
    pub id: FlowId,
    /// Requested flow.
    pub flow: Flow,
    /// Arrival of the last byte at the destination.
    pub end: Picos,
    /// Arrival of the last acknowledgement at the source.
    pub acknowledged: Picos,
    /// Completion time on an empty path, for comparison with `acknowledged` − start.
    pub ideal: Picos,
}

impl Record {
    /// Return the time from the start until the arrival of the last byte.
    pub fn completion(&self) -> Picos {
        self.end.since(self.flow.start)
    }

    /// Return the ratio of the completion time to that on an empty path, both including the last acknowledgement.
    pub fn slowdown(&self) -> f64 {
        self.acknowledged.since(self.flow.start).0 as f64 / self.ideal.0 as f64
    }
}

/// States of open flows by number.
pub type FlowMap<T> = HashMap<FlowId, T, BuildHasherDefault<Multiply>>;

/// A hash of flow numbers, one multiplication: the numbers are sequential, and no user chooses them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
