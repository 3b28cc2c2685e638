//! Points that the paper on pDCell leaves open and that change its figures: the choices that `docs/explanation/pdcell.md` compares.

use serde::Deserialize;

/// How the paper is read where it is open. The defaults are the readings with which its figures are reproduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Readings {
    /// The threshold of a user before the first report.
    pub first_threshold: FirstThreshold,
    /// Under MRFS, the rank of the shortest flow in a user's queue.
    pub rank: Rank,
    /// The rest of a packet that did not fit whole into a subframe.
    pub cut: Cut,
    /// The beginning of the wait (t_s) after a missed packet of pDCell.
    pub backoff_from: BackoffFrom,
}

/// The threshold of a user before the first report, at most its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstThreshold {
    /// An equal part of the buffer among all users.
    #[default]
    Equal,
    /// Each time a user becomes active, an equal part among the users that are active then.
    Active,
}

/// The rank of the shortest flow in a user's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// That of the shortest open flow of the user, whether it has packets in the queue or not.
    #[default]
    Shortest,
    /// Its own.
    Head,
}

/// The rest of a packet that did not fit whole into a subframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// It competes in the next subframe, in the order of the scheduler.
    #[default]
    Compete,
    /// It is served before all packets.
    First,
}

/// The beginning of the wait after a missed packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackoffFrom {
    /// When the packet was missed.
    #[default]
    Refusal,
    /// Whenever a credit is granted, until a packet of the flow is admitted.
    Credit,
}
