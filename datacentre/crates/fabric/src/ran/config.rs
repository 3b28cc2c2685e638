//! The configuration of a radio access network, with readings of the paper on pDCell where the paper is open.

use cellbed_foreign::{AdmissionHeader, SchedulerHeader};
use cellbed_link::cell::{Begin, Scheduler};
use cellbed_link::{Duration, Probability};
use serde::Deserialize;

use super::buffer::{Admission, Rank};
use super::carrier::Carrier;
use super::cell::Leg;
use super::channel::{Channels, CqiSource};
use super::cqi::Cqi;
use super::{PACKET, TTI};
use crate::error::{DescriptionError, refuse};
use crate::random::nth_seed;
use crate::units::Picos;

settings! {
    /// A radio access network. Defaults are the paper's, or our choices where the paper is silent
    /// (`datacentre/docs/pdcell.md`).
    RanConfig {
        /// The host that is the central unit.
        host: u32 = 0,
        /// Hosts of the core that packets of flows to users pass on the way to the central unit, and back.
        through: Vec<u32> = Vec::new(),
        /// Delay at each of these hosts.
        through_ps: Picos = Picos::ZERO,
        /// Number of users.
        users: u32 = 100,
        /// Carrier of the cell.
        carrier: Carrier = Carrier::default(),
        /// Channels of the users.
        cqi: CqiSource = CqiSource::default(),
        /// Scheduler of the resource blocks of a TTI: [`Scheduler::ShortestRemaining`] is MRFS,
        /// [`Scheduler::ProportionalFair`] is PFS (default window: 100 TTI).
        #[serde(deserialize_with = "scheduler")]
        scheduler: Scheduler = PFS,
        /// Treatment of packets that arrive at the central unit. Default: HTD for pDCell, finite queues for others.
        admission: Option<Admission> = None,
        /// Scheduler of a C header, instead of `scheduler`.
        scheduler_header: Option<SchedulerHeader> = None,
        /// Admission policy of a C header, instead of `admission`.
        admission_header: Option<AdmissionHeader> = None,
        /// Buffer at the central unit, shared by all users. Default: 3 MB under HTD, LQD and a header, else the sum
        /// of the users' limits.
        buffer_bytes: Option<u64> = None,
        /// Rate at which the central unit processes packets from its buffer. Default: no limit.
        capacity_bps: Option<f64> = None,
        /// Maximum packets of a user at the central unit, and in the window of the link layer (RLC) of the user's
        /// device: 1024 of 1500 bytes for category 3.
        user_packets: u32 = 1024,
        /// Rate of the central unit's port to each distributed unit.
        fronthaul_bps: f64 = 10e9,
        /// One-way delay between the units.
        fronthaul_ps: Picos = Picos::from_micros(100),
        /// The distributed units. User n belongs to unit n modulo their number. Default: one.
        units: Vec<UnitConfig> = vec![UnitConfig::default()],
        /// Dual connectivity: a user also belongs to the next unit, and has a queue for each of the two.
        dual: bool = false,
        /// Probability that an attempt for a transport block fails.
        block_errors: Probability = Probability::new(0.1).unwrap_or_default(),
        /// TTIs between two attempts.
        harq_ttis: u32 = 8,
        /// Maximum attempts for a block.
        harq_tries: u32 = 4,
        /// One-way delay from a device to the central unit, for the acknowledgements of TCP: 3GPP TR 36.912, table
        /// B.2.1-1.
        uplink_ps: Picos = Picos::from_millis(4),
        /// Reference of the traffic's load.
        load_of: LoadOf = LoadOf::CuLink,
        /// Share of flows that go to users; the others go between random hosts.
        share: f64 = 1.0,
        /// Interval between samples of the queues; 0 for no samples.
        #[serde(rename = "sampling_ps")]
        series_ps: Picos = TTI,
        /// Choices where the paper is open.
        readings: Readings = Readings::default(),
    }
}

/// A distributed unit, with its differences from the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnitConfig {
    /// Carrier of the cell.
    pub carrier: Option<Carrier>,
    /// Rate of its port at the central unit.
    pub fronthaul_bps: Option<f64>,
    /// One-way delay from the central unit.
    pub fronthaul_ps: Option<Picos>,
}

/// A distributed unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) carrier: Carrier,
    /// Rate of its port, at most the capacity of the central unit.
    pub(super) bps: f64,
    pub(super) delay: Picos,
}

impl Unit {
    /// Return the time before a TTI at which the central unit must send: the fronthaul's delay, and the duration of the
    /// largest subframe including the whole last packet; of a slow port the time after the last report.
    pub(super) fn lead(&self) -> u64 {
        let bits = f64::from(self.carrier.bits(Cqi::HIGHEST)) + 8.0 * 65_535.0;
        let subframe = (bits / self.bps * 1e12) as u64;
        let most = self.carrier.tti.0.saturating_sub(2 * self.delay.0);
        self.delay.0 + subframe.min(most)
    }
}

/// Reference of the load of the users' traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadOf {
    /// The link of the central unit's host, as in the paper: far above the cell's capacity, so that flows arrive as a
    /// batch.
    CuLink,
    /// The mean capacity of the cell: a sustainable load.
    Cell,
}

pub(super) const PFS: Scheduler = Scheduler::ProportionalFair {
    window: Duration::from_millis(100),
    begin: Begin::Zero,
};

fn scheduler<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Scheduler, D::Error> {
    let mut value = serde_json::Value::deserialize(from)?;
    if value["kind"] == "proportional-fair" && value.get("window_ns").is_none() {
        value["window_ns"] = (100 * TTI.0 / 1000).into();
    }
    Scheduler::deserialize(value).map_err(serde::de::Error::custom)
}

impl RanConfig {
    /// Reject channels and errors without throughput.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.cqi.check()?;
        if self.block_errors.get() > 0.9 {
            let chance = self.block_errors.get();
            return refuse(format!("block errors of {chance} exceed 0.9"));
        }
        let (units, users) = (self.units.len(), self.users);
        let most = users as usize + usize::from(self.dual);
        if units == 0 || units > most {
            return refuse(format!(
                "{units} distributed units for {users} users: write 1 to {most} units"
            ));
        }
        if self.through.contains(&self.host) {
            return refuse(
                "the central unit is among the hosts of the core: remove it from 'through'",
            );
        }
        if self.dual && units < 2 {
            return refuse("dual connectivity needs two distributed units: write dus = 2");
        }
        for Unit { carrier, delay, .. } in self.units() {
            if 2 * delay.0 > carrier.tti.0 {
                let [delay, tti] = [delay, carrier.tti].map(|it| it.0 / 1_000_000);
                return refuse(format!(
                    "a fronthaul delay of {delay} µs is more than half a TTI of {tti} µs: write a shorter one"
                ));
            }
        }
        Ok(())
    }

    /// Return the mean capacity of the cells in bits per second, without lost blocks and with equal times of the users.
    pub fn mean_bps(&self, seed: u64) -> f64 {
        let rate = |(unit, legs, seed): (Unit, Vec<Leg>, u64)| {
            let channels = Channels::new(&self.cqi, &unit.carrier, legs.len() as u32, seed);
            channels.mean_bits_per_tti(&unit.carrier) / unit.carrier.tti.as_secs_f64()
        };
        self.cells(seed).map(rate).sum::<f64>() * (1.0 - self.block_errors.get())
    }

    /// Return the distributed units.
    pub(super) fn units(&self) -> Vec<Unit> {
        let unit = |it: &UnitConfig| Unit {
            carrier: it.carrier.unwrap_or(self.carrier),
            bps: it
                .fronthaul_bps
                .unwrap_or(self.fronthaul_bps)
                .min(self.capacity_bps.unwrap_or(f64::INFINITY)),
            delay: it.fronthaul_ps.unwrap_or(self.fronthaul_ps),
        };
        self.units.iter().map(unit).collect()
    }

    /// Return each distributed unit with the users' queues for it, and a seed.
    pub(super) fn cells(&self, seed: u64) -> impl Iterator<Item = (Unit, Vec<Leg>, u64)> + use<> {
        let seeds = (0..).map(move |number| nth_seed(seed, number));
        let cells = self.units().into_iter().zip(self.legs()).zip(seeds);
        cells.map(|((unit, legs), seed)| (unit, legs, seed))
    }

    /// Return the users' queues for each distributed unit.
    fn legs(&self) -> Vec<Vec<Leg>> {
        let mut legs = vec![Vec::new(); self.units.len()];
        for queue in 0..self.queues() {
            let (user, second) = (queue % self.users, queue / self.users);
            let other = self.dual.then_some((1 - second) * self.users + user);
            legs[(user + second) as usize % self.units.len()].push(Leg::new(user, queue, other));
        }
        legs
    }

    /// Return the number of queues of a user.
    pub(super) fn queues_of_user(&self) -> u32 {
        1 + u32::from(self.dual)
    }

    /// Return the number of queues of all users.
    pub(super) fn queues(&self) -> u32 {
        self.users * self.queues_of_user()
    }

    /// Return whether the admission drops packets that it has admitted.
    pub fn drops_admitted(&self) -> bool {
        match &self.admission_header {
            Some(header) => header.facts().option != 0,
            None => self.admission == Some(Admission::Lqd),
        }
    }

    /// Return the capacity of the central unit's buffer in packets.
    pub(super) fn capacity(&self, admission: Admission) -> u32 {
        let bytes = self.buffer_bytes.or(match admission {
            _ if self.admission_header.is_some() => Some(3_000_000),
            Admission::Htd | Admission::Lqd => Some(3_000_000),
            Admission::Tail | Admission::Infinite => None,
        });
        let all = u64::from(self.queues()) * u64::from(self.user_packets);
        bytes.map_or(all, |it| it / PACKET).min(u64::from(u32::MAX)) as u32
    }
}

/// Interpretation of the paper where it is ambiguous. The defaults reproduce its figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Readings {
    /// The threshold of a user before the first report.
    pub first_threshold: FirstThreshold,
    /// Under MRFS, the rank of the shortest flow in a user's queue.
    pub rank: Rank,
    /// Treatment of the rest of a packet that did not fit into a subframe.
    pub cut: Cut,
    /// Beginning of the wait (t_s) after a missed packet of pDCell.
    pub backoff_from: BackoffFrom,
}

/// The threshold of a user before the first report, at most its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstThreshold {
    /// Whenever a user becomes active: an equal part of the buffer among the then active users.
    #[default]
    Active,
    /// An equal part among all users.
    Equal,
}

/// Treatment of the rest of a packet that did not fit into a subframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The rest competes in the next subframe, in the order of the scheduler.
    #[default]
    Compete,
    /// The rest is served before all packets.
    First,
}

/// The beginning of the wait after a missed packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackoffFrom {
    /// The time at which the packet was missed.
    #[default]
    Refusal,
    /// Each grant of a credit, until a packet of the flow is admitted.
    Credit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_the_paper_s_defaults_and_refuse_what_cannot_be() {
        let parse = |text: &str| serde_json::from_str::<RanConfig>(text);
        assert_eq!(parse("{}").unwrap(), RanConfig::default());
        let pfs = parse(r#"{"scheduler": {"kind": "proportional-fair"}}"#).unwrap();
        assert_eq!(pfs.scheduler, PFS);
        let mrfs = r#"{"scheduler": {"kind": "shortest-remaining"}, "admission": "lqd", "load_of": "cell",
            "cqi": {"kind": "gauss-markov", "deviation": 1.5}}"#;
        assert_eq!(
            parse(mrfs).unwrap().scheduler,
            Scheduler::ShortestRemaining {}
        );
        for wrong in [
            r#"{"user": 3}"#,
            r#"{"cqi": {"kind": "fixed", "low": 16}}"#,
            r#"{"cqi": {"kind": "fixed", "lowest": 3}}"#,
            r#"{"admission": "red"}"#,
            r#"{"readings": {"cut": "last"}}"#,
            r#"{"block_errors": 1.5}"#,
            r#"{"scheduler": {"kind": "proportional-fair", "window": 3}}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for impossible in [
            r#"{"block_errors": 0.95}"#,
            r#"{"cqi": {"kind": "fixed", "low": 9, "high": 8}}"#,
        ] {
            assert!(parse(impossible).unwrap().check().is_err(), "{impossible}");
        }
    }

    #[test]
    fn the_capacity_is_that_of_equal_times() {
        let traces = [Cqi::LOWEST, Cqi::HIGHEST].map(|it| vec![it]).to_vec();
        let config = RanConfig {
            users: 2,
            cqi: CqiSource::Trace { traces },
            ..RanConfig::default()
        };
        let expected = (5_584.0 + 102_048.0) / 2.0 * 1000.0 * 0.9;
        assert!((config.mean_bps(1) - expected).abs() < 1e-3);
    }
}
