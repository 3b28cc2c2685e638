//! The coupled dual queue of L4S, with the PI2 controller (RFC 9332, Appendix A).

use super::fifo::Line;
use super::pie::Timer;
use super::{Dropped, Limit, QueueLevel, Surcharge};
use crate::outcome::DropReason;
use crate::stage::Item;
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// DualPI2's parameters. The default is that of RFC 9332 Appendix A.1 with the scheduler's weights of Linux.
///
/// Packets marked ECT(1) or CE wait in the low-latency queue L, all others in the classic queue C.
#[derive(Clone, Debug, PartialEq)]
pub struct DualPi2Config {
    /// The delay that the controller aims at (15 ms).
    pub target: Duration,
    /// How often the controller runs (16 ms).
    pub update: Duration,
    /// Integral gain, per second (0.16).
    pub alpha: f64,
    /// Proportional gain, per second (3.2).
    pub beta: f64,
    /// k: packets of L are marked with k times the base probability, packets of C signalled with its square (2).
    pub coupling: f64,
    /// Sojourn time up to which queue L marks nothing of itself (800 µs). From there the probability rises to 1 …
    pub threshold: Duration,
    /// … within this much more (400 µs).
    pub range: Duration,
    /// Share of the link that C gets at least while both queues wait, in percent (10).
    pub classic_share: u8,
    /// Size of a packet, for the scheduler's first turn and for the one packet that L holds unmarked.
    pub mtu: Bytes,
    /// How much waits at most in both queues; what exceeds it is dropped on arrival.
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
            mtu: MTU,
            limit: Limit::default(),
        }
    }
}

/// The controller, names as in the RFC.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// p′
    base: f64,
    /// Delay at the last update, s.
    previous: f64,
    /// Accumulated likelihood of each queue, see [`recur`].
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

    /// p_CL = k · p′
    fn coupled(&self, config: &DualPi2Config) -> f64 {
        (config.coupling * self.base).min(1.0)
    }

    /// p_C = p′²
    fn classic(&self) -> f64 {
        self.base * self.base
    }

    /// p_Cmax, beyond which marks give way to drops: where p_CL reaches 1.
    fn is_overloaded(&self, config: &DualPi2Config) -> bool {
        self.coupled(config) >= 1.0
    }
}

/// Whether it is this packet's turn: on average one in 1 / `likelihood`, evenly spaced.
fn recur(count: &mut f64, likelihood: f64) -> bool {
    *count += likelihood;
    let turn = *count > 1.0;
    if turn {
        *count -= 1.0;
    }
    turn
}

/// p′_L, the low-latency queue's own marking (`laqm` of RFC 9332 Appendix A.1).
fn ramp(config: &DualPi2Config, sojourn: Duration) -> f64 {
    let above = sojourn.saturating_sub(config.threshold).as_nanos();
    match (above, config.range.as_nanos()) {
        (0, _) => 0.0,
        (above, range) if above >= range => 1.0,
        (above, range) => above as f64 / range as f64,
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
    /// Weighted round robin: at most zero, it is L's turn.
    credit: i64,
}

impl<P> DualPi2<P> {
    pub(crate) fn new(config: DualPi2Config, zero: Time) -> Self {
        Self {
            low: Line::new(),
            classic: Line::new(),
            control: Control::default(),
            timer: Timer::new(zero, config.update),
            credit: first_credit(&config),
            config,
        }
    }

    pub(crate) fn restart(&mut self, zero: Time) {
        self.control = Control::default();
        self.timer = Timer::new(zero, self.config.update);
        self.credit = first_credit(&self.config);
    }

    pub(crate) fn push(
        &mut self,
        now: Time,
        item: Item<P>,
        surcharge: Surcharge,
    ) -> Result<(), (Item<P>, DropReason)> {
        self.update(now);
        self.adopt(item, surcharge)
    }

    pub(crate) fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
    ) -> Result<(), (Item<P>, DropReason)> {
        let level = surcharge.on(self.level().plus(item.size));
        if !self.config.limit.holds(level) {
            return Err((item, DropReason::QueueFull));
        }
        if item.ecn.is_low_latency() {
            self.low.push(item);
        } else {
            self.classic.push(item);
        }
        Ok(())
    }

    /// `dualpi2_dequeue` of RFC 9332 Appendix A.2, overload included.
    pub(crate) fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        self.update(now);
        let overloaded = self.control.is_overloaded(&self.config);
        let (coupled, classic) = (self.control.coupled(&self.config), self.control.classic());
        loop {
            let (mut item, is_low) = self.next()?;
            if is_low {
                // A single packet in the queue is not a queue.
                let own = if self.low.is_empty() {
                    0.0
                } else {
                    ramp(&self.config, now.since(item.entered))
                };
                if overloaded && recur(&mut self.control.low_count, classic) {
                    dropped.push_back((item, DropReason::Congestion));
                    continue;
                }
                if recur(&mut self.control.low_count, own.max(coupled)) {
                    item.mark();
                }
            } else if recur(&mut self.control.classic_count, classic)
                && (overloaded || !item.mark())
            {
                dropped.push_back((item, DropReason::Congestion));
                continue;
            }
            return Some(item);
        }
    }

    pub(crate) fn remove(&mut self) -> Option<Item<P>> {
        let low = self.low.head().map(|item| item.entered);
        let classic = self.classic.head().map(|item| item.entered);
        match (low, classic) {
            (Some(low), Some(classic)) if classic < low => self.classic.pop(),
            (Some(_), _) => self.low.pop(),
            (None, _) => self.classic.pop(),
        }
    }

    pub(crate) fn level(&self) -> QueueLevel {
        self.low.level().and(self.classic.level())
    }

    /// Weighted round robin, as Linux has it: each byte of L adds C's weight to the credit, each of C
    /// takes L's away.
    fn next(&mut self) -> Option<(Item<P>, bool)> {
        let is_low = !self.low.is_empty() && (self.classic.is_empty() || self.credit <= 0);
        let line = if is_low {
            &mut self.low
        } else {
            &mut self.classic
        };
        let Some(item) = line.pop() else {
            self.credit = first_credit(&self.config);
            return None;
        };
        let share = i64::from(self.config.classic_share.min(100));
        let size = item.size.0.min(u64::from(u16::MAX)) as i64; // the longest IP packet
        let change = if is_low {
            share * size
        } else {
            (share - 100) * size
        };
        // While one queue alone is served its credit cannot grow without bound.
        let bound = 100 * i64::from(u16::MAX);
        self.credit = (self.credit + change).clamp(-bound, bound);
        Some((item, is_low))
    }

    /// Makes up for the updates before `now`: nothing has entered or left since the last one made.
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

/// Where the scheduler starts: with L if its weight is the larger one.
fn first_credit(config: &DualPi2Config) -> i64 {
    let share = i64::from(config.classic_share.min(100));
    config.mtu.0.min(u64::from(u16::MAX)) as i64 * (2 * share - 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, Tag};

    fn item(ecn: Ecn, entered: Time) -> Item<Ecn> {
        Item::new(ecn, Bytes(1500), entered).tagged(Tag { flow: 0, ecn })
    }

    /// Signals per 1000 packets of each kind, (marked, dropped), with p′ held.
    fn signals(base: f64, ecn: Ecn) -> (usize, usize) {
        let mut queue = DualPi2::new(DualPi2Config::default(), Time::ZERO);
        queue.control.base = base;
        let (mut marked, mut dropped) = (0, Dropped::new());
        for _ in 0..100_000 {
            queue
                .push(Time::ZERO, item(ecn, Time::ZERO), Surcharge::default())
                .unwrap();
            let sent = queue.pop(Time::ZERO, &mut dropped);
            marked += usize::from(sent.is_some_and(|item| item.marked));
        }
        (marked.div_ceil(100), dropped.len().div_ceil(100))
    }

    #[test]
    fn scalable_flows_see_k_p_and_classic_ones_its_square() {
        assert_eq!(signals(0.1, Ecn::Ect1), (200, 0), "k · p′ = 2 · 0.1");
        assert_eq!(signals(0.1, Ecn::Ect0), (10, 0), "p′² = 0.01, by marks");
        assert_eq!(signals(0.1, Ecn::NotEct), (0, 10), "p′² = 0.01, by drops");
    }

    #[test]
    fn beyond_saturation_all_are_dropped_alike() {
        assert_eq!(signals(0.6, Ecn::Ect0), (0, 360), "p′² = 0.36");
        assert_eq!(signals(0.6, Ecn::NotEct), (0, 360));
        let (marked, dropped) = signals(0.6, Ecn::Ect1);
        assert!((260..=370).contains(&dropped), "{dropped}");
        assert!(marked + dropped >= 1000, "what is not dropped is marked");
    }

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
    fn a_ramp_marks_what_waits_in_the_low_latency_queue() {
        let config = DualPi2Config::default();
        let after = |micros| ramp(&config, Duration::from_micros(micros));
        assert_eq!(
            [800, 900, 1000, 1200, 5000].map(after),
            [0.0, 0.25, 0.5, 1.0, 1.0]
        );
        let mut queue = DualPi2::new(config, Time::ZERO);
        for _ in 0..2 {
            queue
                .push(
                    Time::ZERO,
                    item(Ecn::Ect1, Time::ZERO),
                    Surcharge::default(),
                )
                .unwrap();
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
        let mut queue = DualPi2::new(DualPi2Config::default(), Time::ZERO);
        for _ in 0..1000 {
            for ecn in [Ecn::Ect1, Ecn::NotEct] {
                queue
                    .push(Time::ZERO, item(ecn, Time::ZERO), Surcharge::default())
                    .unwrap();
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
