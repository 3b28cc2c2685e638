//! Configuration of a radio link.

use std::fmt;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Error as Fault;

use super::profile::Profile;
use crate::queue::Discipline;
use crate::random::{Probability, Seed};
use crate::schema::JsonSchema;
use crate::time::Duration;

/// One direction of a radio access network, for one device.
///
/// A scheduler assigns [slots](Slots). A slot's capacity for the device follows from the carrier, the
/// [channel](Channel), the share of the [cell](Cell) that other users leave, and the [warmth](Ramp) of the scheduler to
/// the device; unused bytes are lost. Failed blocks are [retransmitted](Harq), and all leave in order. Before the first
/// bytes the device may have to [request slots](Grant) or [wake](Sleep); a [handover](Handover) stops all traffic. The
/// [path](Path) behind adds its delay.
///
/// Both directions of a link have one profile and one seed. They share the fading and the handovers, but not the state
/// of the scheduler, and the state of the device only if [coupled](Self::coupled). Two [devices](Self::device) at one
/// place share the cell, its handovers and the path behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct RadioConfig {
    /// Direction of the link.
    pub way: Way,
    /// Slots of this direction.
    pub slots: Slots,
    /// Capacity of a slot at a given quality.
    pub carrier: Carrier,
    /// Model of the quality.
    pub channel: Channel,
    /// Load of other users.
    pub cell: Cell,
    /// Growth of the rate with the load.
    pub ramp: Ramp,
    /// Retransmission of failed blocks.
    pub harq: Harq,
    /// Uplink grants, if the device must request slots.
    pub grant: Option<Grant>,
    /// Sleep of the device, if it sleeps.
    pub sleep: Option<Sleep>,
    /// Release of the connection, if the network releases it.
    pub release: Option<Release>,
    /// A second carrier, if the network adds one under load.
    pub second: Option<Second>,
    /// Handovers of the device, if it changes cells.
    pub handover: Option<Handover>,
    /// The path between the base station and the far end.
    pub path: Path,
    /// Discipline of the queue before the slots.
    pub queue: Discipline,
    /// Seed of all random processes.
    pub seed: Seed,
    /// Number of the device at its place: each device has separate fading, turns and failed blocks. Other users,
    /// handovers and the path are common to all devices of a seed.
    pub device: u16,
    /// True if data in one direction keep the device awake in the other direction; see [`crate::Graph`].
    pub coupled: bool,
    /// Start position in the surroundings.
    pub offset: Duration,
}

/// A direction, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Way {
    /// From the device.
    Uplink,
    /// To the device.
    Downlink,
}

impl Way {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Uplink, Self::Downlink];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
        })
    }
}

/// The slots of a carrier and which of their symbols this direction may use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Slots {
    /// Length of a slot: 1 ms at 15 kHz, 0.5 ms at 30 kHz subcarrier spacing (TS 38.211, table 4.3.2-1).
    #[serde(rename = "slot_ns")]
    pub length: Duration,
    /// Symbols (0 to 14) for this direction in each slot of the pattern; with frequency division always 14.
    pub symbols: Vec<u8>,
}

/// Symbols of a slot (TS 38.211, table 4.3.2-1).
pub(crate) const SYMBOLS: u8 = 14;

/// The resources of a carrier.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
pub struct Carrier {
    /// Resource blocks of 12 subcarriers (TS 38.101-1, table 5.3.2-1).
    pub blocks: u32,
    /// Spatial layers.
    pub layers: u32,
    /// Share of the resources that control and reference signals take (TS 38.306, §4.1.2: 0.14 downlink, 0.08 uplink).
    pub overhead: f64,
}

/// The quality of the channel: an autoregression of first order on the signal to noise ratio in dB, which is reported
/// in steps as a channel quality indicator (CQI).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// Mean signal to noise ratio, dB.
    pub mean_db: f64,
    /// Standard deviation of the ratio, dB.
    pub deviation_db: f64,
    /// Time constant of the ratio.
    pub memory: Duration,
    /// Interval of the quality reports, and so of changes of the rate.
    pub report: Duration,
}

/// Share of the cell that other users leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Mean share of the resources, 0 to 1.
    pub share: f64,
    /// Standard deviation of the share, which stays between a tenth of its mean and one.
    pub deviation: f64,
    /// Time constant of the share.
    pub memory: Duration,
    /// Probability that the scheduler turns to the device in a slot.
    pub turn: Probability,
    /// Users that send in bursts, if any.
    pub users: Option<Users>,
}

/// Other users that send in bursts. Each active user takes as much of the cell as the device.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// Number of users, at most 64.
    pub count: u32,
    /// Mean time between the bursts of a user: one at a random time in each part of a grid of this width.
    #[serde(rename = "every_ns")]
    pub every: Duration,
    /// Mean length of a burst: exponential, at most `every`.
    #[serde(rename = "length_ns")]
    pub length: Duration,
}

/// Warming of the scheduler to a device: the device's share of the resources grows from `cold` to one.
///
/// While data wait, the share approaches its aim with the time constant `rise`. The aim is one or, with `full`, a part
/// that grows with the maximum bytes waiting since the scheduler was cold. After some packets, long trains are then
/// always delivered faster than short ones.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Initial share of the resources, 0 to 1; 1 for a scheduler without warm-up.
    pub cold: f64,
    /// Time constant of the growth.
    #[serde(rename = "rise_ns")]
    pub rise: Duration,
    /// Waiting bytes for an aim of one; with 0, any suffice.
    pub full: u64,
    /// Exponent of waiting bytes over `full` in the aim; below 1, few bytes raise it much.
    pub bend: f64,
    /// Time constant of the loss of warmth while nothing is sent.
    #[serde(rename = "memory_ns")]
    pub memory: Duration,
}

impl Ramp {
    /// A scheduler that gives all resources at once.
    pub const NONE: Self = Self {
        cold: 1.0,
        rise: Duration::ZERO,
        full: 0,
        bend: 1.0,
        memory: Duration::ZERO,
    };
}

/// Hybrid automatic repeat request: a failed block is retransmitted after a round trip, in place of new bytes. Later
/// blocks wait for it, because the radio link control layer delivers in order.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harq {
    /// Probability that a first transmission fails. The CQI is reported for 0.1 (TS 38.214, §5.2.2.1).
    pub first: Probability,
    /// Probability that a retransmission fails; lower, because the receiver combines all copies.
    pub again: Probability,
    /// Time between two transmissions of a block.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Duration,
    /// Transmissions before the radio link control layer takes over.
    pub attempts: u32,
    /// Duration of the recovery; in unacknowledged mode the time that later blocks wait for a lost one.
    #[serde(rename = "recovery_ns")]
    pub recovery: Duration,
    /// Time from the end of a successful block to the arrival of its bytes.
    #[serde(rename = "decode_ns")]
    pub decode: Duration,
    /// Unacknowledged mode: a block whose last attempt fails is lost, and with it every packet that has bytes in the
    /// block (TS 38.322, §5.2.2).
    #[serde(default)]
    pub unacknowledged: bool,
    /// Failures in deep fades, if any.
    #[serde(default)]
    pub fade: Option<Fade>,
}

/// Failures that follow the channel: link adaptation does not keep up with deep fades.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fade {
    /// Minimum depth of a deep fade: distance of the signal to noise ratio below its mean, dB.
    pub below_db: f64,
    /// Probability that a transmission fails in a deep fade, if higher than outside.
    pub chance: Probability,
}

/// Uplink grants: without a grant, the device sends a scheduling request at its next opportunity, gets a small grant,
/// reports its backlog in that grant, and gets the rest (TS 38.321, §5.4.4 and §5.4.5).
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Interval of the opportunities for a request.
    #[serde(rename = "period_ns")]
    pub period: Duration,
    /// Time from the request to the first granted slot, and from a buffer status report to its slots.
    #[serde(rename = "delay_ns")]
    pub delay: Duration,
    /// Bytes of the first grant.
    pub first: u64,
    /// Time that grants continue after the last bytes.
    #[serde(rename = "tail_ns")]
    pub tail: Duration,
}

/// Discontinuous reception (TS 38.321, §5.7): after some time without data the device listens only now and then, first
/// in short cycles, if there are any, then in long ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sleep {
    /// Time without data before the device sleeps (`drx-InactivityTimer`).
    #[serde(rename = "after_ns")]
    pub after: Duration,
    /// Interval of the wake-ups in long cycles.
    #[serde(rename = "cycle_ns")]
    pub cycle: Duration,
    /// Time that the device listens after a wake-up (`drx-onDurationTimer`).
    #[serde(rename = "awake_ns")]
    pub awake: Duration,
    /// Interval of the wake-ups in short cycles; zero for long cycles only.
    #[serde(default, rename = "short_ns")]
    pub short: Duration,
    /// Time in short cycles before the long ones (`drx-ShortCycleTimer`).
    #[serde(default, rename = "short_for_ns")]
    pub short_for: Duration,
}

/// Release of the connection after some time without data (TS 38.331, §5.3.8): the next packet waits for the set-up of
/// another connection, on the downlink first for the device's next paging occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Time without data before the release.
    #[serde(rename = "after_ns")]
    pub after: Duration,
    /// Minimum duration of a set-up.
    #[serde(rename = "least_ns")]
    pub least: Duration,
    /// Maximum duration of a set-up; durations are uniform.
    #[serde(rename = "most_ns")]
    pub most: Duration,
    /// Interval of the paging occasions; zero if the device need not be paged, as on the uplink.
    #[serde(default, rename = "paging_ns")]
    pub paging: Duration,
}

/// A second carrier (TS 38.321, §5.9): activated when many bytes wait, deactivated after some time without need.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Capacity relative to the first carrier.
    pub gain: f64,
    /// Waiting bytes that activate the carrier.
    pub load: u64,
    /// Time from the activation to the first slot with the carrier.
    #[serde(rename = "delay_ns")]
    pub delay: Duration,
    /// Time without bytes for the carrier before its deactivation (`sCellDeactivationTimer`).
    #[serde(rename = "idle_ns")]
    pub idle: Duration,
}

/// Changes of the cell: no packet passes for a time, none is lost, and the quality differs afterwards.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Mean time between handovers: one at a random time in each part of a grid of this width.
    #[serde(rename = "every_ns")]
    pub every: Duration,
    /// Minimum gap.
    #[serde(rename = "least_ns")]
    pub least: Duration,
    /// Maximum gap, at most half of `every`; gaps are uniform.
    #[serde(rename = "most_ns")]
    pub most: Duration,
    /// Standard deviation of a cell's part of the mean signal to noise ratio, dB.
    pub spread_db: f64,
}

/// The path between the base station and the far end: a one-way delay that varies, with steps at changes of route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Mean delay without steps.
    pub delay: Duration,
    /// Standard deviation of the variation, limited to two deviations below and four above.
    pub deviation: Duration,
    /// Time constant of the variation.
    pub memory: Duration,
    /// Mean time between two steps; zero for none.
    pub every: Duration,
    /// Maximum addition of a step.
    pub step: Duration,
    /// Addition of each byte of a packet, ps: larger packets are assembled from more parts.
    pub per_byte_ps: u64,
}

/// One direction of a radio link. Missing values are the profile's. Scenarios have the keys with a schema.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RadioTable {
    /// Operator and condition, such as 'lowband-driving'.
    #[schemars(
        example = "lowband-driving",
        extend("enum" = Vec::from_iter(Profile::all().map(Profile::name)))
    )]
    profile: String,
    /// Direction of the radio link.
    way: Way,
    /// Seed of both directions of a link.
    seed: Seed,
    #[serde(default)]
    #[schemars(skip)]
    device: u16,
    #[serde(default)]
    #[schemars(skip)]
    coupled: bool,
    #[serde(default, rename = "offset_ns")]
    offset: Duration,
    #[schemars(skip)]
    queue: Option<Queue>,
    /// Mean signal to noise ratio, dB.
    #[schemars(skip)]
    signal_db: Option<f64>,
    /// Mean share of the cell.
    #[schemars(skip)]
    share: Option<f64>,
    /// Standard deviation of the share; default: in proportion to the profile's.
    #[schemars(skip)]
    share_deviation: Option<f64>,
    /// Mean one-way delay behind the base station.
    #[schemars(skip)]
    delay_ns: Option<Duration>,
    #[schemars(skip)]
    handover: Option<Handover>,
    #[schemars(skip)]
    carrier: Option<CarrierTable>,
    /// Fading of the signal.
    #[schemars(skip)]
    fading: Option<Fading>,
    #[schemars(skip)]
    ramp: Option<Ramp>,
    #[schemars(skip)]
    harq: Option<Harq>,
    #[schemars(skip)]
    grant: Option<Grant>,
    #[schemars(skip)]
    sleep: Option<Sleep>,
    #[schemars(skip)]
    release: Option<Release>,
    #[schemars(skip)]
    second: Option<Second>,
    #[schemars(skip)]
    users: Option<Users>,
}

#[derive(Deserialize)]
struct Queue(#[serde(deserialize_with = "crate::queue::deserialize")] Discipline);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CarrierTable {
    #[serde(flatten)]
    carrier: Carrier,
    #[serde(flatten)]
    slots: Slots,
}

/// Standard deviation of the signal to noise ratio, and its time constant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fading {
    deviation_db: f64,
    memory_ns: Duration,
}

fn check_handover(handover: &Handover) -> Result<(), Fault> {
    // The cell and its gap are looked up slot by slot: less than a slot between changes makes no sense.
    if handover.every < Duration::from_millis(1)
        || handover.least > handover.most
        || handover.most.as_nanos() > handover.every.as_nanos() / 2
    {
        let text = "a handover needs at least 1 ms between two, and gaps of at most half of that";
        return Err(Fault::custom(text));
    }
    within(handover.spread_db, 0.0, 30.0, "a spread of cells in dB")?;
    Ok(())
}

fn check_carrier(CarrierTable { carrier, slots }: &CarrierTable) -> Result<(), Fault> {
    if !(1..=10_000).contains(&carrier.blocks) || !(1..=64).contains(&carrier.layers) {
        let text = "a carrier has 1 to 10000 resource blocks and 1 to 64 layers";
        return Err(Fault::custom(text));
    }
    if !(0.0..1.0).contains(&carrier.overhead) {
        let text = format!("an overhead of {} is outside 0 to 1", carrier.overhead);
        return Err(Fault::custom(text));
    }
    if slots.length < Duration::from_micros(10) || slots.symbols.iter().all(|&it| it == 0) {
        let text = "slots have at least 10 µs, and a pattern at least one symbol";
        return Err(Fault::custom(text));
    }
    Ok(())
}

/// Check the parts whose values could make a search long, a list grow without limit or a capacity negative.
fn check_parts(config: &RadioConfig) -> Result<(), Fault> {
    let users = config.cell.users.map_or(0, |users| users.count);
    within(f64::from(users), 0.0, 64.0, "a number of users")?;
    let gain = config.second.map_or(0.0, |second| second.gain);
    within(gain, 0.0, 100.0, "a gain of the second carrier")?;
    let late = config.harq.round_trip.max(config.harq.recovery);
    within(late.as_secs_f64(), 0.0, 10.0, "a retransmission after s")?;
    within(config.ramp.cold, 0.0, 1.0, "a cold share")?;
    Ok(())
}

fn within(value: f64, low: f64, high: f64, what: &str) -> Result<f64, Fault> {
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(Fault::custom(format!(
            "{what} of {value} is outside {low} to {high}"
        ))),
    }
}

impl RadioTable {
    pub(crate) fn build(self) -> Result<RadioConfig, Fault> {
        let profile = Profile::named(&self.profile).ok_or_else(|| {
            let known: Vec<_> = Profile::all().map(Profile::name).collect();
            let name = &self.profile;
            let known = known.join(", ");
            Fault::custom(format!(
                "there is no radio profile {name:?}; known are {known}"
            ))
        })?;
        let mut config = RadioConfig {
            seed: self.seed,
            device: self.device,
            coupled: self.coupled,
            offset: self.offset,
            ..profile.config(self.way)
        };
        if let Some(Queue(queue)) = self.queue {
            config.queue = queue;
        }
        if let Some(db) = self.signal_db {
            config.channel.mean_db = within(db, -50.0, 100.0, "a signal in dB")?;
        }
        if let Some(share) = self.share {
            config.cell.deviation *= within(share, 0.001, 1.0, "a share")? / config.cell.share;
            config.cell.share = share;
        }
        if let Some(deviation) = self.share_deviation {
            config.cell.deviation = within(deviation, 0.0, 1.0, "a deviation of the share")?;
        }
        if let Some(delay) = self.delay_ns {
            config.path.delay = delay;
        }
        if let Some(handover) = self.handover {
            check_handover(&handover)?;
            config.handover = Some(handover);
        }
        if let Some(table) = self.carrier {
            check_carrier(&table)?;
            (config.carrier, config.slots) = (table.carrier, table.slots);
        }
        if let Some(fading) = self.fading {
            config.channel.deviation_db =
                within(fading.deviation_db, 0.0, 30.0, "a deviation in dB")?;
            config.channel.memory = fading.memory_ns;
        }
        config.ramp = self.ramp.unwrap_or(config.ramp);
        config.harq = self.harq.unwrap_or(config.harq);
        config.grant = self.grant.or(config.grant);
        config.sleep = self.sleep.or(config.sleep);
        (config.release, config.second) = (self.release, self.second);
        config.cell.users = self.users;
        check_parts(&config)?;
        Ok(config)
    }
}
