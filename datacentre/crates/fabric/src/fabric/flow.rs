//! Flows: what applications ask for, and how it went.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::units::{FlowId, HostId, Picos};

/// A transfer that an application asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host that has the bytes.
    pub source: HostId,
    /// The host that wants them.
    pub destination: HostId,
    /// A mobile user behind the destination, a central unit.
    pub user: Option<u32>,
    /// Bytes of the application.
    pub bytes: u64,
    /// When it starts.
    pub start: Picos,
}

/// A flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub id: FlowId,
    /// Requested flow.
    pub flow: Flow,
    /// When its last byte reached the destination.
    pub end: Picos,
    /// When its source knew.
    pub acknowledged: Picos,
    /// Completion time on an empty path, for comparison with `acknowledged` − start.
    pub ideal: Picos,
}

impl Record {
    /// Time from the start until the last byte was there.
    pub fn completion(&self) -> Picos {
        self.end.since(self.flow.start)
    }

    /// Return the ratio of the completion time to that on an empty path, with the last acknowledgement on either side.
    pub fn slowdown(&self) -> f64 {
        self.acknowledged.since(self.flow.start).0 as f64 / self.ideal.0 as f64
    }
}

/// States of flows by number, only of those that live.
pub type FlowMap<T> = HashMap<FlowId, T, BuildHasherDefault<Multiply>>;

/// A hash for the numbers of flows, one multiplication: they come in order, nobody chooses them.
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
