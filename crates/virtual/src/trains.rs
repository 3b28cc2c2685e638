//! Datagrams with answers: packet trains; trains of one packet are round trips.

use cellbed_link::{Bytes, Duration, Time};

use crate::event::{End, Event};
use crate::network::{Application, Network};

/// Packet trains (Sentosa et al., NSDI 2025, §3.2): packets back to back; the last one is acknowledged.
#[derive(Clone, Debug)]
pub struct Trains {
    /// Sender of the trains.
    pub from: End,
    /// IP length of their packets.
    pub packet: Bytes,
    /// IP length of the acknowledgement.
    pub acknowledgement: Bytes,
    /// From the sending of a train to the sending of the next.
    pub gap: Duration,
    lengths: Vec<usize>,
    trains: Vec<Train>,
    acknowledged: usize,
}

/// The outcome of a train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// When it was sent.
    pub sent: Time,
    /// When each packet arrived, if it did.
    pub arrivals: Vec<Option<Time>>,
    /// From its sending until its sender had the acknowledgement of the last packet; `None` if one of the two was lost.
    pub completion: Option<Duration>,
}

/// Labels hold the number of the train above the packet's number in it.
const PACKET_BITS: u32 = 32;

impl Trains {
    /// Trains of these lengths from the server, of 1400-byte packets, acknowledged with 100 bytes.
    pub fn new(lengths: &[usize], gap: Duration) -> Self {
        Self {
            from: End::Server,
            packet: Bytes(1400),
            acknowledgement: Bytes(100),
            gap,
            lengths: lengths.to_vec(),
            trains: Vec::with_capacity(lengths.len()),
            acknowledged: 0,
        }
    }

    /// The trains that were sent.
    pub fn results(&self) -> &[Train] {
        &self.trains
    }
}

impl Application for Trains {
    fn on_event(&mut self, event: Event, network: &mut Network) {
        let now = network.now();
        match event {
            Event::Due { .. } => {
                let number = self.trains.len();
                let Some(&length) = self.lengths.get(number) else {
                    return;
                };
                for index in 0..length {
                    let label = (number as u64) << PACKET_BITS | index as u64;
                    network.send(self.from, self.packet, label);
                }
                self.trains.push(Train {
                    sent: now,
                    arrivals: vec![None; length],
                    completion: None,
                });
                if number + 1 < self.lengths.len() {
                    network.wake(now + self.gap, 0);
                }
            }
            Event::Datagram { at, label } if at == self.from => {
                let train = &mut self.trains[label as usize];
                if train.completion.is_none() {
                    train.completion = Some(now - train.sent);
                    self.acknowledged += 1;
                }
            }
            Event::Datagram { label, .. } => {
                let number = label >> PACKET_BITS;
                let arrivals = &mut self.trains[number as usize].arrivals;
                let index = (label & ((1 << PACKET_BITS) - 1)) as usize;
                arrivals[index].get_or_insert(now);
                if index + 1 == arrivals.len() {
                    network.send(self.from.peer(), self.acknowledgement, number);
                }
            }
            _ => {}
        }
    }

    /// Packets that may still come behind the last of their train do not count.
    fn is_done(&self) -> bool {
        self.acknowledged == self.lengths.len()
    }
}
