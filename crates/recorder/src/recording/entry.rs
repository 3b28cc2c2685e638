//! Entries of the journal, as bytes: a kind, and its fields.

use super::run::RunPlan;
use crate::client::{ClockAnswer, Departure, Event, Pause, Reception, RunEnd, RunEvent};
use crate::field::{Field, Reader, fields};
use crate::wire::{Arrival, Malformed};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A run has been asked for.
    Run(RunPlan),
    /// A path has learnt something.
    Event(Event),
    /// This machine lost packets that the network had delivered, as many so far.
    Overflows(u64),
}

const RUN: u8 = 1;
const BEGAN: u8 = 2;
const SENT: u8 = 3;
const UPLINK: u8 = 4;
const DOWNLINK: u8 = 5;
const PAUSED: u8 = 6;
const ENDED: u8 = 7;
const OVERFLOWS: u8 = 9;
const CLOCK: u8 = 10;

fields! {
    ClockAnswer { requested, received_ns, sent_ns, at };
    Departure { train, index, bytes, at };
    Arrival { train, index, bytes, arrived_ns };
    Reception { train, index, bytes, sent_ns, at };
    Pause { from, until };
    RunEnd { at, complete, saturation_sent, withheld, unrecorded, overflows } but refusal;
}

impl Entry {
    /// Adds it to a block. Events without information for a recording are left out.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Run(plan) => {
                RUN.put(out);
                let json = serde_json::to_vec(plan).unwrap_or_default();
                (json.len() as u32).put(out);
                out.extend_from_slice(&json);
            }
            Self::Overflows(count) => {
                OVERFLOWS.put(out);
                count.put(out);
            }
            Self::Event(Event::Clock(answer)) => {
                CLOCK.put(out);
                answer.put(out);
            }
            Self::Event(Event::Run(run, event)) => match event {
                RunEvent::Began(at) => put_of_run(BEGAN, *run, at, out),
                RunEvent::Sent(departure) => put_of_run(SENT, *run, departure, out),
                RunEvent::ArrivedUplink(arrival) => put_of_run(UPLINK, *run, arrival, out),
                RunEvent::ArrivedDownlink(reception) => put_of_run(DOWNLINK, *run, reception, out),
                RunEvent::Paused(pause) => put_of_run(PAUSED, *run, pause, out),
                RunEvent::Ended(end) => put_of_run(ENDED, *run, end, out),
            },
            Self::Event(_) => {}
        }
    }

    /// Read the next entry.
    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = reader.u8()?;
        match kind {
            RUN => {
                let length = reader.take::<u32>()? as usize;
                let plan = serde_json::from_slice(reader.slice(length)?);
                return plan.map(Self::Run).map_err(|_| UNKNOWN);
            }
            OVERFLOWS => return reader.take().map(Self::Overflows),
            CLOCK => return Ok(Self::Event(Event::Clock(reader.take()?))),
            _ => {}
        }
        let run = reader.take()?;
        let event = match kind {
            BEGAN => RunEvent::Began(reader.take()?),
            SENT => RunEvent::Sent(reader.take()?),
            UPLINK => RunEvent::ArrivedUplink(reader.take()?),
            DOWNLINK => RunEvent::ArrivedDownlink(reader.take()?),
            PAUSED => RunEvent::Paused(reader.take()?),
            ENDED => RunEvent::Ended(reader.take()?),
            _ => return Err(UNKNOWN),
        };
        Ok(Self::Event(Event::Run(run, event)))
    }
}

const UNKNOWN: Malformed = Malformed("an unknown entry of the journal");

fn put_of_run(kind: u8, run: u32, fields: &impl Field, out: &mut Vec<u8>) {
    kind.put(out);
    run.put(out);
    fields.put(out);
}
