//! Sleeping until a device has packets, a request arrives or a time is reached.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use cellbed_link::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::clock::{Alarm, now};
use crate::error::{Result, Trying};
use crate::process::Scheduling;

/// The token of the alarm, which no descriptor that is watched may have.
const ALARM: u64 = u64::MAX;

/// Descriptors reported at once; the others are reported the next time.
const MOST_EVENTS: usize = 64;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Descriptors to watch, and an alarm.
pub struct Wake {
    epoll: OwnedFd,
    alarm: Alarm,
    spin: Duration,
    /// True if a timeout of the wait is as exact as the alarm: the kernel rounds those of ordinary threads.
    exact: bool,
}

impl Wake {
    /// One that watches nothing yet. For `spin` before a deadline it does not sleep but looks at the clock and the
    /// descriptors in turns: that is exact where a sleeping processor would wake up late, and takes a processor as long.
    pub fn new(spin: Duration) -> Result<Self> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).trying(|| "create an event queue".into())?;
        let wake = Self {
            epoll,
            alarm: Alarm::new()?,
            spin,
            exact: false,
        };
        wake.watch(&wake.alarm, ALARM)?;
        Ok(wake)
    }

    /// Says how the kernel schedules the calling thread: it decides what is the cheapest exact way to sleep.
    pub fn scheduled(&mut self, scheduling: Scheduling) {
        self.exact = scheduling == Scheduling::Fifo;
    }

    /// Reports `descriptor` by `token` when it is readable.
    pub fn watch(&self, descriptor: &impl AsFd, token: u64) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)
            .trying(|| "watch a device".into())
    }

    /// Stops watching.
    pub fn forget(&self, descriptor: &impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, descriptor).trying(|| "leave a device".into())
    }

    /// Sleeps until `deadline` or until a descriptor is readable, and puts the tokens of those into `called`. May come
    /// back earlier with nothing.
    pub fn wait(&mut self, deadline: Time, called: &mut Vec<u64>) -> Result<()> {
        called.clear();
        let asleep_until = self.asleep_until(deadline);
        let now = self::now();
        if now < asleep_until {
            if !self.exact {
                self.alarm.set(Some(asleep_until))?;
                return self.look(None, called);
            }
            let span = asleep_until.since(now).as_nanos();
            let timeout = Timespec {
                tv_sec: (span / 1_000_000_000) as i64,
                tv_nsec: (span % 1_000_000_000) as i64,
            };
            return self.look(Some(&timeout), called);
        }
        loop {
            self.look(Some(&AT_ONCE), called)?;
            if !called.is_empty() || self::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Sleeps until shortly before `deadline`, in any case: the rest of the time is for [`Wake::wait`].
    pub fn pause(&self, deadline: Time) {
        let nanos = self.asleep_until(deadline).as_nanos();
        let until = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        // Interrupted or not, what follows looks at the clock.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
    }

    /// Sleeps until `deadline` or until `also` is readable, ignoring the watched descriptors.
    pub fn nap(&mut self, deadline: Time, also: &impl AsFd) -> Result<()> {
        self.alarm.set(Some(deadline))?;
        let mut watched = [
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(also, PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).trying(|| "wait for room".into()),
        }
    }

    fn asleep_until(&self, deadline: Time) -> Time {
        Time::from_nanos(deadline.as_nanos().saturating_sub(self.spin.as_nanos()))
    }

    fn look(&mut self, timeout: Option<&Timespec>, called: &mut Vec<u64>) -> Result<()> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); MOST_EVENTS];
        let events = match epoll::wait(&self.epoll, &mut space, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).trying(|| "wait for packets".into()),
        };
        for event in events {
            match event.data.u64() {
                ALARM => self.alarm.acknowledge(),
                token => called.push(token),
            }
        }
        Ok(())
    }
}
