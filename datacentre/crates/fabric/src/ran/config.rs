//! The configuration of a radio access network, with readings of the paper on pDCell where the paper is open.

use cellbed_foreign::{AdmissionHeader, SchedulerHeader};
use cellbed_link::cell::{Begin, Scheduler};
use cellbed_link::{Duration, Probability};
use serde::Deserialize;

use super::buffer::{Admission, Rank};
use super::channel::{Channels, CqiSource};
use super::cqi::Cqi;
use super::{PACKET, TTI};
use crate::error::{DescriptionError, refuse};
use crate::units::Picos;

/// A radio access network. Defaults are the paper's, or our choices where the paper is silent
/// (`datacentre/docs/pdcell.md`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RanConfig {
    /// The host that is the central unit.
    pub host: u32,
    /// Number of users.
    pub users: u32,
    /// Channels of the users.
    pub cqi: CqiSource,
    /// Scheduler of the resource blocks of a TTI: [`Scheduler::ShortestRemaining`] is MRFS,
    /// [`Scheduler::ProportionalFair`] is PFS (default window: 100 TTI).
    #[serde(deserialize_with = "scheduler")]
    pub scheduler: Scheduler,
    /// Treatment of packets that arrive at the central unit. Default: HTD for pDCell, finite queues for others.
    pub admission: Option<Admission>,
    /// Scheduler of a C header, instead of `scheduler`.
    pub scheduler_header: Option<SchedulerHeader>,
    /// Admission policy of a C header, instead of `admission`.
    pub admission_header: Option<AdmissionHeader>,
    /// Buffer at the central unit, shared by all users. Default: 3 MB under HTD, LQD and a header, else the sum
    /// of the users' limits.
    pub buffer_bytes: Option<u64>,
    /// Maximum packets of a user at the central unit, and in the window of the link layer (RLC) of the user's device:
    /// 1024 of 1500 bytes for category 3.
    pub user_packets: u32,
    /// Rate of the link between the units.
    pub fronthaul_bps: f64,
    /// One-way delay of the link between the units.
    pub fronthaul_ps: Picos,
    /// Probability that an attempt for a transport block fails.
    pub block_errors: Probability,
    /// TTIs between two attempts.
    pub harq_ttis: u32,
    /// Maximum attempts for a block.
    pub harq_tries: u32,
    /// One-way delay from a device to the central unit, for the acknowledgements of TCP: 3GPP TR 36.912, table B.2.1-1.
    pub uplink_ps: Picos,
    /// Reference of the traffic's load.
    pub load_of: LoadOf,
    /// Share of flows that go to users; the others go between random hosts.
    pub share: f64,
    /// Interval between samples of the queues; 0 for no samples.
    pub series_ps: Picos,
    /// Choices where the paper is open.
    pub readings: Readings,
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

impl Default for RanConfig {
    fn default() -> Self {
        Self {
            host: 0,
            users: 100,
            cqi: CqiSource::default(),
            scheduler: PFS,
            admission: None,
            scheduler_header: None,
            admission_header: None,
            buffer_bytes: None,
            user_packets: 1024,
            fronthaul_bps: 10e9,
            fronthaul_ps: Picos::from_micros(100),
            block_errors: Probability::new(0.1).unwrap_or_default(),
            harq_ttis: 8,
            harq_tries: 4,
            uplink_ps: Picos::from_millis(4),
            load_of: LoadOf::CuLink,
            share: 1.0,
            series_ps: TTI,
            readings: Readings::default(),
        }
    }
}

impl RanConfig {
    /// Reject channels and errors without throughput.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.cqi.check()?;
        if self.block_errors.get() > 0.9 {
            let chance = self.block_errors.get();
            return refuse(format!("block errors of {chance} exceed 0.9"));
        }
        Ok(())
    }

    /// Return the mean capacity of the cell in bits per second, without lost blocks and with equal times of the users.
    pub fn capacity_bps(&self, seed: u64) -> f64 {
        let bits = Channels::new(&self.cqi, self.users, seed).mean_bits_per_tti();
        bits / TTI.as_secs_f64() * (1.0 - self.block_errors.get())
    }

    /// Return whether the admission drops packets that it has admitted.
    pub fn drops_admitted(&self) -> bool {
        match &self.admission_header {
            Some(header) => header.option(),
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
        let all = u64::from(self.users) * u64::from(self.user_packets);
        bytes.map_or(all, |it| it / PACKET).min(u64::from(u32::MAX)) as u32
    }

    /// Return the time before a TTI at which the central unit must send: the fronthaul's delay, and the duration of the
    /// largest subframe including the whole last packet.
    pub(super) fn lead(&self) -> u64 {
        let bits = f64::from(Cqi::HIGHEST.bits_per_tti()) + 8.0 * 65_535.0;
        self.fronthaul_ps.0 + (bits / self.fronthaul_bps * 1e12) as u64
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
        assert!((config.capacity_bps(1) - expected).abs() < 1e-3);
    }
}
