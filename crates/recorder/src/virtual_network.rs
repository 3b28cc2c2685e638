//! Both directions of a link in virtual time, with a client at one end and a server at the other.

use cellbed_link::{Bytes, Direction, Duration, Fate, Graph, StageConfig, Time};

use crate::calibration::{
    Calibration, CalibrationError, Calibrator, Experiment, PACKET_BYTES, TimedTrain, Workload,
};
use crate::packet::{PacketRecord, Way};
use crate::plan::Saturation;
use crate::workload::{AdaptiveSaturator, FixedRateSaturator, QueueKeeper};

/// A network of two [directions](cellbed_link::Direction), in which whole experiments are made at once. Its time
/// continues from one to the next.
///
/// The clocks of its ends agree, and its computers send and answer in no time.
#[derive(Clone, Debug)]
pub struct VirtualNetwork {
    /// Directions 0, the uplink, and 1, the downlink.
    graph: Graph<Probe>,
    now: Time,
    /// Packets of an earlier experiment do not count in a later one.
    experiment: u32,
}

/// Interval of the reports of arrivals to the saturator of [`saturate`]: that at which the light device of a live
/// recording polls.
const REPORTS: Duration = Duration::from_millis(100);

/// Fills one direction of a network for `span`, adaptively: when each packet was sent and when it arrived, `None` where
/// it was lost.
///
/// The direction starts at rest. The saturator hears of arrivals each 0.1 s, over another path. Packets still under way
/// at the end of the span arrive.
pub fn saturate(
    stages: Vec<StageConfig>,
    keeper: QueueKeeper,
    bytes: u16,
    span: Duration,
) -> Vec<(Time, Option<Time>)> {
    let mut direction = Direction::new(stages, Time::ZERO);
    let mut saturator = AdaptiveSaturator::new(keeper, bytes, Time::ZERO, Time::ZERO + span);
    let (mut packets, mut arrived) = (Vec::<(Time, Option<Time>)>::new(), Vec::<u32>::new());
    let mut next_report = Time::ZERO + REPORTS;
    loop {
        let due = saturator.next_event();
        let next = [due, direction.next_event(), due.map(|_| next_report)];
        let Some(now) = next.into_iter().flatten().min() else {
            return packets;
        };
        while let Some(outcome) = direction.poll(now) {
            if outcome.fate == Fate::Delivered {
                packets[outcome.packet as usize].1 = Some(outcome.departed);
                arrived.push(outcome.packet);
            }
        }
        if now >= next_report {
            next_report = now + REPORTS;
            for index in arrived.drain(..) {
                if let (sent, Some(there)) = packets[index as usize] {
                    let stamps = [sent, there].map(|time| time.as_nanos() as i64);
                    saturator.arrived(now, index, stamps[0], stamps[1]);
                }
            }
        }
        while let Some(index) = saturator.emit(now) {
            packets.push((now, None));
            direction.accept(now, index, Bytes(bytes.into()));
        }
    }
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
struct Probe {
    experiment: u32,
    /// Index of its record.
    record: usize,
}

impl VirtualNetwork {
    /// A network whose schedules and series start now.
    pub fn new(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Self {
        Self {
            graph: Graph::pair(uplink, downlink, Time::ZERO),
            now: Time::ZERO,
            experiment: 0,
        }
    }

    /// The time; experiments start now.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Duration) {
        self.now += span;
    }

    /// A whole calibration.
    ///
    /// # Errors
    ///
    /// As in [`Calibrator::take`].
    pub fn calibrate(
        &mut self,
        mut calibrator: Calibrator,
    ) -> Result<Calibration, CalibrationError> {
        while let Some(experiment) = calibrator.next() {
            let (up, down) = self.run(experiment);
            calibrator.take(&up, &down)?;
        }
        calibrator.finish()
    }

    /// Makes an experiment and gives what became of the packets, uplink and downlink, in the order in which they were
    /// sent. Times are those of the network.
    pub fn run(&mut self, experiment: &Experiment) -> (Vec<PacketRecord>, Vec<PacketRecord>) {
        self.experiment += 1;
        let mut run = Run {
            experiment: self.experiment,
            trains: &[],
            answered: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
        };
        let mut trains: &[TimedTrain] = &[];
        let (mut uplink, mut downlink) = (None, None);
        let start = self.now;
        match &experiment.workload {
            Workload::Trains(timed) => {
                (trains, run.trains) = (timed, timed);
                run.answered = vec![false; timed.len()];
            }
            Workload::Saturation {
                uplink: up,
                downlink: down,
                span,
            } => {
                let saturator = |saturation: &Option<Saturation>| {
                    let rate = saturation.as_ref()?.rate()?;
                    let bytes = Bytes(PACKET_BYTES.into());
                    Some(FixedRateSaturator::new(rate, bytes, start, start + *span))
                };
                (uplink, downlink) = (saturator(up), saturator(down));
            }
        }
        let mut sent = start;
        loop {
            let train = trains.first().map(|timed| start + timed.at);
            let event = self.graph.next_event();
            let due = |saturator: &Option<FixedRateSaturator>| saturator.as_ref()?.next_event();
            let sends = [train, due(&uplink), due(&downlink)];
            let sends = sends.into_iter().flatten().min();
            let Some(now) = [sends, event].into_iter().flatten().min() else {
                break;
            };
            if sends.is_none() && now > sent + experiment.quiet {
                break;
            }
            self.now = self.now.max(now);
            // What leaves goes before what enters.
            if event == Some(now) {
                while let Some((direction, outcome)) = self.graph.poll(now) {
                    let way = [Way::Uplink, Way::Downlink][direction];
                    if outcome.fate == Fate::Delivered && run.arrived(way, outcome.packet, now) {
                        sent = sent.max(now);
                        if way == Way::Uplink {
                            run.answer(outcome.packet, now, &mut self.graph);
                        }
                    }
                }
            } else if train == Some(now) {
                sent = now;
                let number = (run.trains.len() - trains.len()) as u32;
                let train = trains[0].train;
                run.send(
                    Way::Uplink,
                    number,
                    train.up,
                    train.up_bytes,
                    now,
                    &mut self.graph,
                );
                trains = &trains[1..];
            } else if emits(&mut uplink, now) {
                sent = now;
                run.send(Way::Uplink, 0, 1, PACKET_BYTES, now, &mut self.graph);
            } else if emits(&mut downlink, now) {
                sent = now;
                run.send(Way::Downlink, 0, 1, PACKET_BYTES, now, &mut self.graph);
            }
        }
        self.now = self.now.max(sent + experiment.quiet);
        if matches!(experiment.workload, Workload::Saturation { .. }) {
            for records in [&mut run.up, &mut run.down] {
                (0..)
                    .zip(records)
                    .for_each(|(index, record)| record.index = index);
            }
        }
        (run.up, run.down)
    }
}

/// Return whether a packet of a saturation is sent now, and take it.
fn emits(saturator: &mut Option<FixedRateSaturator>, now: Time) -> bool {
    let packet = saturator.as_mut().and_then(|it| it.emit(now));
    packet.is_some()
}

/// The records of an experiment under way.
struct Run<'a> {
    experiment: u32,
    trains: &'a [TimedTrain],
    answered: Vec<bool>,
    up: Vec<PacketRecord>,
    down: Vec<PacketRecord>,
}

impl Run<'_> {
    fn records(&mut self, way: Way) -> &mut Vec<PacketRecord> {
        match way {
            Way::Uplink => &mut self.up,
            Way::Downlink => &mut self.down,
        }
    }

    fn send(
        &mut self,
        way: Way,
        train: u32,
        packets: u16,
        bytes: u16,
        now: Time,
        graph: &mut Graph<Probe>,
    ) {
        let experiment = self.experiment;
        let records = self.records(way);
        for index in 0..u32::from(packets) {
            let record = records.len();
            records.push(PacketRecord {
                train,
                index,
                bytes,
                sent_ns: Some(now.as_nanos() as i64),
                arrived_ns: None,
                copies: 0,
            });
            let probe = Probe { experiment, record };
            graph.accept(now, way as usize, probe, Bytes(bytes.into()));
        }
    }

    /// Record an arrival; return whether it belongs to this experiment.
    fn arrived(&mut self, way: Way, probe: Probe, now: Time) -> bool {
        let known = probe.experiment == self.experiment;
        if known {
            let record = &mut self.records(way)[probe.record];
            record.arrived_ns.get_or_insert(now.as_nanos() as i64);
            record.copies = record.copies.saturating_add(1);
        }
        known
    }

    /// Sends the answer of a train whose first packet to arrive is there.
    fn answer(&mut self, probe: Probe, now: Time, graph: &mut Graph<Probe>) {
        let number = self.up[probe.record].train;
        let Some(answered) = self.answered.get_mut(number as usize) else {
            return;
        };
        if !std::mem::replace(answered, true) {
            let train = self.trains[number as usize].train;
            self.send(
                Way::Downlink,
                number,
                train.down,
                train.down_bytes,
                now,
                graph,
            );
        }
    }
}
