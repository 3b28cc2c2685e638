//! Experiments on a link in virtual time, with the client at one end and the server at the other.

use cellbed_link::{Bytes, Duration, StageConfig, Time};
use cellbed_virtual::{End, Event, Network};

use crate::Result;
use crate::calibration::{Calibration, Calibrator, Experiment, PACKET_BYTES};
use crate::plan::{PacketRecord, Train, Way, Workload};
use crate::workload::{AdaptiveSaturator, FixedRateSaturator, QueueKeeper, TrainScheduler};

/// A network of two hosts for successive experiments. Time continues between experiments.
///
/// The hosts' clocks agree. The hosts send and answer in zero time.
#[derive(Clone, Debug)]
pub struct VirtualNetwork(Network);

/// Interval of the arrival reports to the saturator of [`saturate`], as in a live recording.
const REPORTS: Duration = Duration::from_millis(100);

/// Saturate one direction for `span` adaptively. Return the sending and arrival time of each packet, with no arrival
/// for a lost packet.
///
/// The direction begins at rest. Arrivals are reported to the saturator every 0.1 s, over another path. Packets in
/// flight at the end of the span arrive.
pub fn saturate(
    stages: Vec<StageConfig>,
    keeper: QueueKeeper,
    bytes: u16,
    span: Duration,
) -> Vec<(Time, Option<Time>)> {
    let mut network = Network::new(stages, Vec::new());
    let mut saturator = AdaptiveSaturator::new(keeper, bytes, Time::ZERO, Time::ZERO + span);
    let (mut packets, mut arrived) = (Vec::<(Time, Option<Time>)>::new(), Vec::<u32>::new());
    let mut next_report = Time::ZERO + REPORTS;
    loop {
        let due = saturator.next_event().map(|due| due.min(next_report));
        if let Some(event) = network.next_event(due.unwrap_or(Time::MAX)) {
            if let Event::Datagram { label, .. } = event {
                packets[label as usize].1 = Some(network.now());
                arrived.push(label as u32);
            }
            continue;
        }
        if due.is_none() {
            return packets;
        }
        let now = network.now();
        if now >= next_report {
            next_report = now + REPORTS;
            for index in arrived.drain(..) {
                if let (sent, Some(arrival)) = packets[index as usize] {
                    let stamps = [sent, arrival].map(|time| time.as_nanos() as i64);
                    saturator.arrived(now, index, stamps[0], stamps[1]);
                }
            }
        }
        while let Some(index) = saturator.emit(now) {
            packets.push((now, None));
            network.send(End::Client, Bytes(bytes.into()), index.into());
        }
    }
}

impl VirtualNetwork {
    /// A network whose schedules and series begin now.
    pub fn new(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Self {
        Self(Network::new(uplink, downlink))
    }

    /// The first two hosts of a network.
    pub fn of(network: Network) -> Self {
        Self(network)
    }

    /// Return the current time, at which the next experiment begins.
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Advance the time.
    pub fn pass(&mut self, span: Duration) {
        self.0.begin();
        self.0.next_event(self.now() + span);
    }

    /// Run all experiments of a calibration.
    ///
    /// # Errors
    ///
    /// As in [`Calibrator::take`].
    pub fn calibrate(&mut self, mut calibrator: Calibrator) -> Result<Calibration> {
        while let Some(experiment) = calibrator.next() {
            let (up, down) = self.run(experiment);
            calibrator.take(&up, &down)?;
        }
        calibrator.finish()
    }

    /// Run an experiment; return the uplink and downlink packets in the order of sending, in the network's time.
    pub fn run(&mut self, experiment: &Experiment) -> (Vec<PacketRecord>, Vec<PacketRecord>) {
        let start = self.now();
        let mut trains = match &experiment.workload {
            Workload::Trains(plan) => Some(TrainScheduler::new(plan.clone(), start)),
            Workload::Saturation { .. } => None,
        };
        let end = experiment.span.map_or(Time::MAX, |span| start + span);
        let mut saturators = Way::BOTH.map(|way| {
            let (rate, bytes) = (experiment.workload.rate(way)?, Bytes(PACKET_BYTES.into()));
            Some(FixedRateSaturator::new(rate, bytes, start, end))
        });
        self.0.begin();
        let mut run = Run {
            network: &mut self.0,
            records: Default::default(),
        };
        let mut unanswered: Vec<Option<Train>> = Vec::new();
        let mut latest = start;
        loop {
            let train = trains.as_ref().and_then(TrainScheduler::next_event);
            let train = train.filter(|due| *due < end);
            let [up, down] = &saturators;
            let due = [up, down].map(|saturator| saturator.as_ref()?.next_event());
            let next = due.into_iter().chain([train]).flatten().min();
            let until = next.unwrap_or(latest + experiment.quiet);
            match run.network.next_event(until) {
                Some(Event::Datagram { at, label }) => {
                    latest = run.network.now();
                    let number = run.record_arrival(at, label as usize);
                    if at == End::Server
                        && let Some(train) = unanswered.get_mut(number as usize)
                        && let Some(train) = train.take()
                    {
                        run.send(Way::Downlink, number, train.packets(Way::Downlink));
                    }
                }
                Some(_) => {}
                None if next.is_none() => return run.records.into(),
                None => {
                    latest = run.network.now();
                    if train.is_some()
                        && let Some((number, train)) =
                            trains.as_mut().and_then(|it| it.emit(latest))
                    {
                        run.send(Way::Uplink, number, train.packets(Way::Uplink));
                        unanswered.push(Some(train));
                    }
                    for (way, saturator) in Way::BOTH.into_iter().zip(&mut saturators) {
                        if let Some(index) = saturator.as_mut().and_then(|it| it.emit(latest)) {
                            run.send_packet(way, 0, index, PACKET_BYTES);
                        }
                    }
                }
            }
        }
    }
}

/// An experiment in progress.
struct Run<'a> {
    network: &'a mut Network,
    /// Packets of the uplink and of the downlink.
    records: [Vec<PacketRecord>; 2],
}

impl Run<'_> {
    fn send(&mut self, way: Way, train: u32, (packets, bytes): (u16, u16)) {
        for index in 0..u32::from(packets) {
            self.send_packet(way, train, index, bytes);
        }
    }

    fn send_packet(&mut self, way: Way, train: u32, index: u32, bytes: u16) {
        let records = &mut self.records[way as usize];
        let label = records.len() as u64;
        records.push(PacketRecord {
            train,
            index,
            bytes,
            sent_ns: Some(self.network.now().as_nanos() as i64),
            arrived_ns: None,
            copies: 0,
        });
        let from = [End::Client, End::Server][way as usize];
        self.network.send(from, Bytes(bytes.into()), label);
    }

    /// Record an arrival; return the number of the packet's train.
    fn record_arrival(&mut self, at: End, label: usize) -> u32 {
        let record = &mut self.records[usize::from(at == End::Client)][label];
        let now = self.network.now().as_nanos() as i64;
        record.arrived_ns.get_or_insert(now);
        record.copies = record.copies.saturating_add(1);
        record.train
    }
}
