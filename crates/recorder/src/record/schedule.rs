//! Schedule of the workloads.

use cellbed_link::{Duration, Time};

use super::Plan;
use crate::recording::{Arrangement, Role};
use cellbed_calibration::plan::Workload;

/// Pause between two turns. The link becomes idle, so that packets of one workload do not meet the other.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Time until a run begins again after its session was lost.
const AGAIN: Duration = Duration::from_millis(500);

/// Decides when runs begin, from the results of previous runs.
pub(super) struct Schedule {
    end: Time,
    /// Slots of the light and of the heavy workload, and of downloads, by role.
    slots: [Slot; 3],
    in_turns: bool,
    fetches: bool,
    stopped: bool,
}

/// State of the runs of one role.
struct Slot {
    role: Role,
    workload: Option<Workload>,
    /// Duration of the workload's turns.
    turn: Duration,
    run: Option<u32>,
    /// Time at which a run may begin; `None`: never.
    due: Option<Time>,
    /// End of the turn.
    until: Time,
}

impl Schedule {
    pub(super) fn new(plan: &Plan, zero: Time) -> Self {
        let end = zero + plan.duration;
        let turns = fitting(plan.turns, plan.duration);
        let slot = |role, workload: Option<Workload>, turn| Slot {
            role,
            due: workload.as_ref().map(|_| zero),
            workload,
            turn,
            run: None,
            until: end,
        };
        let bytes = plan.packet_bytes;
        let saturation = plan.heavy.map(|ways| Workload::Saturation { ways, bytes });
        let light = slot(
            Role::Light,
            plan.light.clone().map(Workload::Trains),
            turns.0,
        );
        let heavy = slot(Role::Heavy, saturation, turns.1);
        let downloads = slot(Role::Downloads, None, Duration::ZERO);
        let both = plan.light.is_some() && plan.heavy.is_some();
        let mut schedule = Self {
            end,
            slots: [light, heavy, downloads],
            in_turns: both && plan.arrangement == Arrangement::Alternating,
            fetches: !plan.downloads.is_empty(),
            stopped: false,
        };
        if schedule.in_turns {
            schedule.slots[1].due = None;
            schedule.slots[0].until = schedule.turn_end(Role::Light, zero);
        }
        schedule
    }

    /// Return the intended end of the recording.
    pub(super) fn end(&self) -> Time {
        self.end
    }

    /// Return the runs that should begin, with durations. Each is returned once; then call [`Schedule::began`].
    pub(super) fn due(&mut self, now: Time) -> Vec<(Role, Workload, Duration)> {
        let mut due = Vec::new();
        for slot in &mut self.slots[..2] {
            if slot.run.is_some() || slot.due.is_none_or(|due| due > now) {
                continue;
            }
            slot.due = None;
            let span = slot.until - now;
            if let Some(workload) = slot.workload.clone().filter(|_| !span.is_zero()) {
                due.push((slot.role, workload, span));
            }
        }
        due
    }

    /// Return whether downloads should begin. They never meet a run of a workload.
    pub(super) fn downloads(&mut self, now: Time) -> bool {
        let idle = self.slots.iter().all(|slot| slot.run.is_none());
        let due = &mut self.slots[Role::Downloads as usize].due;
        idle && due.take_if(|due| *due <= now).is_some()
    }

    pub(super) fn began(&mut self, role: Role, run: u32) {
        self.slots[role as usize].run = Some(run);
    }

    /// Record the end of a run. An incomplete run begins again if time is left in its turn.
    pub(super) fn ended(&mut self, run: u32, complete: bool, now: Time) {
        let start = now + PAUSE;
        let mut slots = self.slots.iter();
        let Some(place) = slots.position(|slot| slot.run == Some(run)) else {
            return;
        };
        let (slot, again) = (&mut self.slots[place], now + AGAIN);
        slot.run = None;
        match slot.role {
            _ if self.stopped => {}
            Role::Downloads => self.next_turn(Role::Heavy, start),
            _ if !complete && again < slot.until => slot.due = Some(again),
            Role::Light if self.fetches => {
                self.slots[Role::Downloads as usize].due = Some(start);
            }
            Role::Light => self.next_turn(Role::Heavy, start),
            Role::Heavy => self.next_turn(Role::Light, start),
        }
    }

    /// Let the next turn begin at `start`, if it is one of turns and time is left.
    fn next_turn(&mut self, role: Role, start: Time) {
        if self.in_turns && start < self.end {
            let until = self.turn_end(role, start);
            let slot = &mut self.slots[role as usize];
            (slot.due, slot.until) = (Some(start), until);
        }
    }

    /// Return the end of a turn that begins at `start`. If too little time would be left for a turn of the heavy
    /// workload, a light turn lasts until the end of the recording.
    fn turn_end(&self, role: Role, start: Time) -> Time {
        let end = start + self.slots[role as usize].turn;
        let heavy = self.slots[Role::Heavy as usize].turn;
        let worth = Duration::from_nanos(heavy.as_nanos() / 2);
        match role == Role::Light && end + PAUSE + worth > self.end {
            true => self.end,
            false => end.min(self.end),
        }
    }

    /// End the schedule; return the runs that must be stopped.
    pub(super) fn stop(&mut self, now: Time) -> Vec<(Role, u32)> {
        self.stopped = true;
        self.end = self.end.min(now);
        self.slots.iter_mut().for_each(|slot| slot.due = None);
        let slots = self.slots.iter();
        slots
            .filter_map(|slot| Some((slot.role, slot.run?)))
            .collect()
    }

    /// Return whether nothing runs and nothing is scheduled.
    pub(super) fn is_done(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| slot.run.is_none() && slot.due.is_none())
    }
}

/// Return the turns, shortened so that each workload has one in `duration`.
pub(super) fn fitting(
    (light, heavy): (Duration, Duration),
    duration: Duration,
) -> (Duration, Duration) {
    let wanted = light.as_secs_f64() + heavy.as_secs_f64();
    let there = duration.as_secs_f64() - 2.0 * PAUSE.as_secs_f64();
    let share = (there / wanted).clamp(0.0, 1.0);
    let cut = |turn: Duration| Duration::from_nanos((turn.as_nanos() as f64 * share) as u64);
    (cut(light), cut(heavy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellbed_calibration::plan::{Both, TrainPlan};

    fn plan(arrangement: Arrangement) -> Plan {
        Plan {
            light: Some(TrainPlan {
                rotation: Vec::new(),
                gap_ns: 1,
                jitter: 0.0,
                count: None,
                seed: 0,
            }),
            heavy: Some(Both::default()),
            packet_bytes: 1400,
            downloads: Vec::new(),
            arrangement,
            turns: (Duration::from_secs(20), Duration::from_secs(10)),
            duration: Duration::from_secs(60),
        }
    }

    fn second(second: u64) -> Time {
        Time::from_millis(second * 1_000)
    }

    #[test]
    fn turns_follow_each_other_when_the_one_before_is_over() {
        let mut schedule = Schedule::new(&plan(Arrangement::Alternating), second(0));
        let mut spans = Vec::new();
        let mut run = 0;
        for time in 0..90 {
            for (role, _, span) in schedule.due(second(time)) {
                run += 1;
                schedule.began(role, run);
                spans.push((role, time, span.as_secs_f64() as u64));
            }
            if let Some((_, began, length)) = spans.last()
                && time == began + length + 2
            {
                schedule.ended(run, true, second(time)); // the queue needs 2 s to empty
            }
        }
        let (light, heavy) = (Role::Light, Role::Heavy);
        assert_eq!(spans, [(light, 0, 20), (heavy, 23, 10), (light, 36, 24)]);
        assert!(schedule.is_done());
    }

    #[test]
    fn turns_become_shorter_in_a_short_recording() {
        // In 8 s both have a turn.
        for (duration, light, heavy) in [(40, 20, 10), (8, 4, 2)] {
            let plan = Plan {
                duration: Duration::from_secs(duration),
                ..plan(Arrangement::Alternating)
            };
            let mut schedule = Schedule::new(&plan, second(0));
            assert_eq!(schedule.due(second(0))[0].2, Duration::from_secs(light));
            schedule.began(Role::Light, 1);
            schedule.ended(1, true, second(light + 1));
            let due = schedule.due(second(light + 2));
            assert_eq!(
                (due[0].0, due[0].2),
                (Role::Heavy, Duration::from_secs(heavy))
            );
        }
    }

    #[test]
    fn downloads_follow_the_light_workload_and_meet_no_run() {
        for (arrangement, light_ends) in
            [(Arrangement::Alternating, 20), (Arrangement::Together, 60)]
        {
            let plan = Plan {
                downloads: vec![1],
                ..plan(arrangement)
            };
            let mut schedule = Schedule::new(&plan, second(0));
            let runs = (1..).zip(schedule.due(second(0))).map(|(run, (role, ..))| {
                schedule.began(role, run);
                run
            });
            let runs = runs.collect::<Vec<_>>();
            for run in runs {
                assert!(!schedule.downloads(second(light_ends + 9)), "others run");
                schedule.ended(run, true, second(light_ends));
            }
            assert!(
                !schedule.downloads(second(light_ends))
                    && schedule.downloads(second(light_ends + 1))
            );
            schedule.began(Role::Downloads, 7);
            assert!(!schedule.is_done() && schedule.due(second(light_ends + 9)).is_empty());
            schedule.ended(7, true, second(light_ends + 9));
            let next = schedule.due(second(light_ends + 10));
            let next = next.iter().map(|(role, ..)| *role).collect::<Vec<_>>();
            match arrangement {
                Arrangement::Alternating => assert_eq!(next, [Role::Heavy]),
                Arrangement::Together => assert!(next.is_empty() && schedule.is_done()),
            }
        }
    }

    #[test]
    fn a_lost_run_begins_again_for_what_is_left_of_its_time() {
        let mut schedule = Schedule::new(&plan(Arrangement::Together), second(0));
        let due = schedule.due(second(0));
        assert_eq!(due.len(), 2);
        for (run, (role, ..)) in (1..).zip(&due) {
            schedule.began(*role, run);
        }
        schedule.ended(1, false, second(30));
        let again = schedule.due(second(31));
        assert_eq!(
            (again[0].0, again[0].2),
            (Role::Light, Duration::from_secs(29))
        );
        schedule.began(Role::Light, 3);
        assert_eq!(
            schedule.stop(second(40)),
            [(Role::Light, 3), (Role::Heavy, 2)]
        );
        schedule.ended(3, true, second(41));
        schedule.ended(2, true, second(41));
        assert!(schedule.is_done());
    }
}
