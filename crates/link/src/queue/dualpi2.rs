//! The coupled dual queue of L4S, with the PI2 controller (RFC 9332, Appendix A).

use crate::schema::JsonSchema;

use super::fifo::Line;
use super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge, Timer};
use crate::packet::{DropReason, Item};
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// DualPI2's parameters. The default follows RFC 9332 Appendix A.1 (Figure 2) with the scheduler's weights of Linux
/// and no limit.
///
/// Packets marked ECT(1) or CE wait in the low-latency queue L, all others in the classic queue C. Both
/// additions of the reference implementation (Appendix A.1) are here: the scheduler's credit changes
/// only while both queues have packets, and the controller's signals spare what leaves a backlog below two packets.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DualPi2Config {
    /// The queueing delay that is aimed at.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Interval of the computation of the drop probability.
    ///
    /// `Tupdate`; 16 ms, as in Linux and the explanation of Figure 6.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "update_ns")]
    pub update: Duration,
    /// Gain of the delay's distance from the target, per second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    pub alpha: f64,
    /// Gain of the delay's growth, per second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    pub beta: f64,
    /// Ratio of the marking of L4S packets to the dropping of classic ones.
    ///
    /// k: packets of L are marked with k times the base probability, packets of C signalled with its square (Appendix
    /// C).
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    pub coupling: f64,
    /// Wait below which the L4S queue marks nothing itself.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "threshold_ns")]
    pub threshold: Duration,
    /// Further wait over which its marking rises to certainty.
    ///
    /// Zero makes a step of it (Appendix A.1, note c).
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "range_ns")]
    pub range: Duration,
    /// Share of the link that classic packets get at least, in per cent.
    #[schemars(range(max = 100))]
    pub classic_share: u8,
    /// Maximum length of both queues together. An arriving packet counts as one of [`MTU`] bytes at least, so that
    /// small ones are no better off (Figure 3, line 2); what exceeds it is dropped.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Default for DualPi2Config {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update: Duration::from_millis(16),
            alpha: 0.16,
            beta: 3.2,
            coupling: 2.0,
            threshold: Duration::from_micros(800),
            range: Duration::from_micros(400),
            classic_share: 10,
            limit: Limit::default(),
        }
    }
}

/// Both queues.
#[derive(Clone, Debug)]
pub(crate) struct DualPi2<P> {
    config: DualPi2Config,
    low: Line<P>,
    classic: Line<P>,
    control: Control,
    timer: Timer,
    /// Credit of the weighted round robin: L's turn if at most 0.
    credit: i64,
}

impl<P> QueueDiscipline<P> for DualPi2<P> {
    type Config = DualPi2Config;

    fn new(config: DualPi2Config, _packet: Option<Duration>, zero: Time) -> Self {
        Self {
            low: Line::new(),
            classic: Line::new(),
            control: Control::default(),
            timer: Timer::new(zero, config.update),
            credit: first_credit(&config),
            config,
        }
    }

    fn restart(&mut self, zero: Time) {
        self.control = Control::default();
        self.timer = Timer::new(zero, self.config.update);
        self.credit = first_credit(&self.config);
    }

    fn push(
        &mut self,
        now: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.update(now);
        self.adopt(item, surcharge, dropped)
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let (line, other) = match item.ecn.is_low_latency() {
            true => (&mut self.low, &self.classic),
            false => (&mut self.classic, &self.low),
        };
        let mut beside = surcharge.serving.and(other.level());
        beside.bytes += Bytes(MTU.0.saturating_sub(item.size.0));
        let surcharge = Surcharge {
            serving: beside,
            ..surcharge
        };
        line.admit(&self.config.limit, item, surcharge)
    }

    /// `dualpi2_dequeue` of RFC 9332 Appendix A.2 (Figure 7).
    fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        self.update(now);
        loop {
            let backlog = self.level().bytes.0;
            let Some(Turn {
                mut item,
                is_low,
                credit,
            }) = self.next()
            else {
                self.credit = first_credit(&self.config);
                return None;
            };
            let spared = backlog < 2 * MTU.0;
            let drops = match is_low {
                true => self.drops_low(now, &mut item, spared),
                false => !spared && self.drops_classic(&mut item),
            };
            if drops {
                dropped.push_back((item, DropReason::Congestion));
                continue;
            }
            self.credit += credit;
            return Some(item);
        }
    }

    fn remove(&mut self) -> Option<Item<P>> {
        let low = self.low.head().map(|item| item.entered);
        let classic = self.classic.head().map(|item| item.entered);
        match (low, classic) {
            (Some(low), Some(classic)) if classic < low => self.classic.pop(),
            (Some(_), _) => self.low.pop(),
            (None, _) => self.classic.pop(),
        }
    }

    fn level(&self) -> QueueLevel {
        self.low.level().and(self.classic.level())
    }
}

impl<P> DualPi2<P> {
    /// Lines 4b to 8j: marks a packet of L, or returns true to drop it.
    fn drops_low(&mut self, now: Time, item: &mut Item<P>, spared: bool) -> bool {
        let control = &mut self.control;
        // A single packet is no queue (`Th_len`).
        let own = match self.low.is_empty() {
            true => 0.0,
            false => ramp(&self.config, now.since(item.entered)),
        };
        let marks = if spared {
            recur(&mut control.low_count, own)
        } else if !control.saturates_low(&self.config) {
            let coupled = control.coupled(&self.config);
            recur(&mut control.low_count, own.max(coupled))
        } else {
            let classic = control.classic();
            if recur(&mut control.low_count, classic) {
                return true;
            }
            recur(&mut control.low_count, 1.0)
        };
        if marks {
            item.mark();
        }
        false
    }

    /// Lines 11 to 17: marks a packet of C, or returns true to drop it.
    fn drops_classic(&mut self, item: &mut Item<P>) -> bool {
        let control = &mut self.control;
        let classic = control.classic();
        let signalled = recur(&mut control.classic_count, classic);
        signalled && (control.saturates_classic(&self.config) || !item.mark())
    }

    /// Weighted round robin, as in Linux: while both queues have packets, each byte of L adds C's weight to the credit,
    /// each byte of C subtracts L's weight.
    fn next(&mut self) -> Option<Turn<P>> {
        let contended = !self.low.is_empty() && !self.classic.is_empty();
        let is_low = !self.low.is_empty() && (self.classic.is_empty() || self.credit <= 0);
        let line = if is_low {
            &mut self.low
        } else {
            &mut self.classic
        };
        let item = line.pop()?;
        let share = i64::from(self.config.classic_share.min(100));
        let size = item.size.0.min(u64::from(u16::MAX)) as i64; // the longest IP packet
        let credit = match (contended, is_low) {
            (false, _) => 0,
            (true, true) => share * size,
            (true, false) => (share - 100) * size,
        };
        Some(Turn {
            item,
            is_low,
            credit,
        })
    }

    /// Perform the missed updates before `now`; the queues have not changed since the last update.
    fn update(&mut self, now: Time) {
        while let Some(at) = self.timer.due(now) {
            let waited = |line: &Line<P>| line.head().map(|head| at.since(head.entered));
            let delay = waited(&self.low)
                .max(waited(&self.classic))
                .unwrap_or_default();
            self.control.update(&self.config, delay.as_secs_f64());
            let control = &self.control;
            if self.level().packets.0 == 0 && control.base == 0.0 && control.previous == 0.0 {
                self.timer.skip_to(now);
            }
        }
    }
}

/// A packet that the scheduler has chosen.
struct Turn<P> {
    item: Item<P>,
    is_low: bool,
    /// Change of the credit by its departure.
    credit: i64,
}

/// Return the initial credit of the scheduler: L begins if its weight is larger.
fn first_credit(config: &DualPi2Config) -> i64 {
    let share = i64::from(config.classic_share.min(100));
    MTU.0 as i64 * (2 * share - 100)
}

/// The controller, names as in the RFC.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// p′
    base: f64,
    /// Delay at the last update, s.
    previous: f64,
    /// Accumulated likelihood of each queue; see [`recur`].
    low_count: f64,
    classic_count: f64,
}

impl Control {
    fn update(&mut self, config: &DualPi2Config, delay: f64) {
        let integral = config.alpha * (delay - config.target.as_secs_f64());
        let proportional = config.beta * (delay - self.previous);
        self.base = (self.base + integral + proportional).clamp(0.0, 1.0);
        self.previous = delay;
    }

    /// p_CL = k · p′ (Figure 8, line 4)
    fn coupled(&self, config: &DualPi2Config) -> f64 {
        (config.coupling * self.base).min(1.0)
    }

    /// p_C = p′² (Figure 8, line 5)
    fn classic(&self) -> f64 {
        self.base * self.base
    }

    /// Return whether L has reached p_Lmax = 1 (Figure 7, line 4b), so that packets are dropped there, too.
    fn saturates_low(&self, config: &DualPi2Config) -> bool {
        self.coupled(config) >= 1.0
    }

    /// Return whether C has reached p_Cmax = min(1 / k², 1), so that marks give way to drops (Figure 7, line 12b).
    fn saturates_classic(&self, config: &DualPi2Config) -> bool {
        self.classic() >= (1.0 / (config.coupling * config.coupling)).min(1.0)
    }
}

/// Return whether to signal this packet: on average one in 1 / `likelihood`, evenly spaced (`recur`, RFC 9332 Figure
/// 4).
fn recur(count: &mut f64, likelihood: f64) -> bool {
    *count += likelihood;
    let turn = *count > 1.0;
    if turn {
        *count -= 1.0;
    }
    turn
}

/// p′_L, the low-latency queue's own marking (`laqm`, RFC 9332 Figure 5).
fn ramp(config: &DualPi2Config, sojourn: Duration) -> f64 {
    if sojourn >= config.threshold + config.range {
        return 1.0;
    }
    let above = sojourn.saturating_sub(config.threshold).as_nanos();
    above as f64 / config.range.as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, Tag};

    fn item(ecn: Ecn, entered: Time) -> Item<Ecn> {
        Item::new(ecn, Bytes(1500), entered).tagged(Tag {
            ecn,
            ..Tag::default()
        })
    }

    fn push(queue: &mut DualPi2<Ecn>, item: Item<Ecn>) {
        let pushed = queue.push(Time::ZERO, item, Surcharge::default(), &mut Dropped::new());
        pushed.unwrap();
    }

    /// Signals per 1000 packets of each kind, (marked, dropped), with p′ held and packets always waiting.
    fn signals(base: f64, ecn: Ecn) -> (usize, usize) {
        let mut queue = DualPi2::new(DualPi2Config::default(), None, Time::ZERO);
        queue.control.base = base;
        let (mut marked, mut dropped) = (0, Dropped::new());
        for _ in 0..100_000 {
            while queue.level().packets.0 < 50 {
                push(&mut queue, item(ecn, Time::ZERO));
            }
            let sent = queue.pop(Time::ZERO, &mut dropped);
            marked += usize::from(sent.is_some_and(|item| item.marked));
        }
        let all = 100_000 + dropped.len();
        let share = |count: usize| (count as f64 / all as f64 * 1000.0).round() as usize;
        (share(marked), share(dropped.len()))
    }

    #[test]
    fn scalable_flows_see_k_p_and_classic_ones_its_square() {
        assert_eq!(signals(0.1, Ecn::Ect1), (200, 0), "k · p′ = 2 · 0.1");
        assert_eq!(signals(0.1, Ecn::Ect0), (10, 0), "p′² = 0.01, by marks");
        assert_eq!(signals(0.1, Ecn::NotEct), (0, 10), "p′² = 0.01, by drops");
    }

    #[test]
    fn beyond_saturation_all_are_dropped_alike() {
        assert_eq!(signals(0.49, Ecn::Ect0), (240, 0), "p_C below p_Cmax");
        assert_eq!(signals(0.49, Ecn::Ect1), (980, 0), "p_CL below p_Lmax");
        assert_eq!(signals(0.6, Ecn::Ect0), (0, 360), "p′² = 0.36");
        assert_eq!(signals(0.6, Ecn::NotEct), (0, 360));
        assert_eq!(signals(0.6, Ecn::Ect1), (640, 360), "the rest is marked");
    }

    #[test]
    fn the_last_packet_is_spared() {
        let mut queue = DualPi2::new(DualPi2Config::default(), None, Time::ZERO);
        queue.control.base = 1.0;
        let mut dropped = Dropped::new();
        for ecn in [Ecn::Ect1, Ecn::Ect0, Ecn::NotEct].repeat(10) {
            push(&mut queue, item(ecn, Time::ZERO));
            assert!(!queue.pop(Time::ZERO, &mut dropped).unwrap().marked);
        }
        assert!(dropped.is_empty());
    }

    #[test]
    fn an_alternating_link_owes_nothing() {
        let mut queue = DualPi2::new(DualPi2Config::default(), None, Time::ZERO);
        let mut dropped = Dropped::new();
        // L is alone for long: C gains no credit meanwhile
        for _ in 0..1000 {
            push(&mut queue, item(Ecn::Ect1, Time::ZERO));
            queue.pop(Time::ZERO, &mut dropped).unwrap();
        }
        push(&mut queue, item(Ecn::Ect1, Time::ZERO));
        push(&mut queue, item(Ecn::NotEct, Time::ZERO));
        let first = queue.pop(Time::ZERO, &mut dropped).unwrap().packet;
        assert_eq!(first, Ecn::Ect1);
    }

    #[test]
    fn a_ramp_marks_what_waits_in_the_low_latency_queue() {
        let config = DualPi2Config::default();
        let mut queue = DualPi2::new(config, None, Time::ZERO);
        for _ in 0..2 {
            push(&mut queue, item(Ecn::Ect1, Time::ZERO));
        }
        let later = Time::from_millis(2);
        let mut dropped = Dropped::new();
        queue.control.low_count = 0.5;
        assert!(queue.pop(later, &mut dropped).unwrap().marked);
        assert!(
            !queue.pop(later, &mut dropped).unwrap().marked,
            "alone in its queue"
        );
    }

    #[test]
    fn the_classic_queue_keeps_its_share() {
        let mut queue = DualPi2::new(DualPi2Config::default(), None, Time::ZERO);
        for _ in 0..1000 {
            for ecn in [Ecn::Ect1, Ecn::NotEct] {
                push(&mut queue, item(ecn, Time::ZERO));
            }
        }
        let mut dropped = Dropped::new();
        let served: Vec<Ecn> = (0..1000)
            .map(|_| queue.pop(Time::ZERO, &mut dropped).unwrap().packet)
            .collect();
        assert_eq!(served[0], Ecn::Ect1);
        let classic = served.iter().filter(|&&ecn| ecn == Ecn::NotEct).count();
        assert!(
            (98..=101).contains(&classic),
            "{classic} of 1000 at a share of 10 %"
        );
    }
}

#[cfg(test)]
mod control_tests {
    use super::*;

    #[test]
    fn the_controller_steps_as_the_rfc_says() {
        let config = DualPi2Config::default();
        let mut control = Control::default();
        control.update(&config, 0.025);
        // 0.16 · 0.010 + 3.2 · 0.025
        assert!((control.base - 0.0816).abs() < 1e-12);
        control.update(&config, 0.020);
        // + 0.16 · 0.005 − 3.2 · 0.005
        assert!((control.base - 0.0664).abs() < 1e-12);
        (0..100).for_each(|_| control.update(&config, 0.0));
        assert_eq!(control.base, 0.0);
    }

    #[test]
    fn the_ramp_rises_between_its_thresholds() {
        let config = DualPi2Config::default();
        let after = |micros| ramp(&config, Duration::from_micros(micros));
        assert_eq!(
            [800, 900, 1000, 1200, 5000].map(after),
            [0.0, 0.25, 0.5, 1.0, 1.0]
        );
        let step = DualPi2Config {
            range: Duration::ZERO,
            ..config.clone()
        };
        assert_eq!(
            [799, 800, 801].map(|micros| ramp(&step, Duration::from_micros(micros))),
            [0.0, 1.0, 1.0]
        );
    }
}
