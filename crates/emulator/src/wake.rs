//! Sleeping until a device has packets, a request arrives or a time is reached.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use cellbed_link::Time;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::ahead::Ahead;
use crate::clock::{Alarm, now, timespec};
use crate::error::{Result, Trying};

/// Token of the alarm; no watched descriptor may have it.
const ALARM: u64 = u64::MAX;

/// Maximum descriptors reported per call; the next call reports the others.
const MOST_EVENTS: usize = 64;

/// Watched descriptors, and an alarm.
pub struct Wake {
    epoll: OwnedFd,
    alarm: Alarm,
    /// True if a timeout of the wait is as exact as the alarm: the kernel rounds timeouts of ordinary threads.
    pub exact: bool,
    ahead: Ahead,
}

impl Wake {
    /// Create a value that watches no descriptor.
    pub fn new() -> Result<Self> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).trying(|| "create an event queue".into())?;
        let wake = Self {
            epoll,
            alarm: Alarm::new()?,
            exact: false,
            ahead: Ahead::new(now()),
        };
        wake.watch(&wake.alarm, ALARM)?;
        Ok(wake)
    }

    /// Report `descriptor` by `token` when it is readable.
    pub fn watch(&self, descriptor: &impl AsFd, token: u64) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        let added = epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN);
        Ok(added.trying(|| "watch a device".into())?)
    }

    /// Stop watching.
    pub fn forget(&self, descriptor: &impl AsFd) -> Result<()> {
        let deleted = epoll::delete(&self.epoll, descriptor);
        Ok(deleted.trying(|| "leave a device".into())?)
    }

    /// Sleep from `before` (now) until `start`, then wait without sleep until `deadline`; end when a descriptor is
    /// readable. Writes the tokens of readable descriptors into `called`. May return earlier without tokens.
    pub fn wait(
        &mut self,
        before: Time,
        start: Time,
        deadline: Time,
        called: &mut Vec<u64>,
    ) -> Result<()> {
        called.clear();
        if deadline <= before {
            return self.look(Some(&timespec(0)), called);
        }
        if start > before {
            self.sleep(before, start, called)?;
            if start == deadline || !called.is_empty() {
                return Ok(());
            }
        }
        let woken = now();
        if start > before {
            self.ahead.on_wake_up(woken.since(start));
        }
        let mut time = woken;
        while called.is_empty() && time < deadline {
            self.look(Some(&timespec(0)), called)?;
            time = now();
        }
        self.ahead.on_waited(time.since(woken));
        Ok(())
    }

    /// Return when to end a sleep from `before`: at `deadline`, with `punctual` [earlier](crate::ahead).
    pub fn start(&mut self, before: Time, deadline: Time, punctual: bool) -> Time {
        match punctual {
            true => self.ahead.start(before, deadline),
            false => deadline,
        }
    }

    /// Sleep until `deadline` or until `also` is readable, ignoring the watched descriptors.
    pub fn nap(&mut self, deadline: Time, also: &impl AsFd) -> Result<()> {
        let span = timespec(deadline.since(now()).as_nanos());
        match poll(&mut [PollFd::new(also, PollFlags::IN)], Some(&span)) {
            Ok(0) => self.ahead.on_wake_up(now().since(deadline)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => Err(error).trying(|| "wait for room".into())?,
        }
        Ok(())
    }

    fn sleep(&mut self, before: Time, until: Time, called: &mut Vec<u64>) -> Result<()> {
        let span = until.since(before).as_nanos();
        if span > 0 && !self.exact {
            self.alarm.set(until)?;
            return self.look(None, called);
        }
        self.look(Some(&timespec(span)), called)
    }

    fn look(&mut self, timeout: Option<&Timespec>, called: &mut Vec<u64>) -> Result<()> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); MOST_EVENTS];
        let events = match epoll::wait(&self.epoll, &mut space, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => Err(error).trying(|| "wait for packets".into())?,
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
