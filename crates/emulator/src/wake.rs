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

    /// Sleep from `before` (now) until `deadline` or until a descriptor is readable. Writes the tokens of readable descriptors into
    /// `called`. May return earlier without tokens. With `punctual`, the sleep ends [earlier](Ahead), and the rest is
    /// waited for without sleep.
    pub fn wait(
        &mut self,
        before: Time,
        deadline: Time,
        punctual: bool,
        called: &mut Vec<u64>,
    ) -> Result<()> {
        called.clear();
        let until = match punctual {
            true => self.ahead.wake_up(before, deadline),
            false => deadline,
        };
        if until <= before {
            self.look(Some(&timespec(0)), called)?;
        } else if self.exact {
            self.look(Some(&timespec(until.since(before).as_nanos())), called)?;
        } else {
            self.alarm.set(until)?;
            self.look(None, called)?;
        }
        if !punctual {
            return Ok(());
        }
        let woken = now();
        if called.is_empty() && until > before {
            self.ahead.on_wake_up(woken.since(until));
        }
        let mut time = woken;
        while until < deadline && called.is_empty() && time < deadline {
            self.look(Some(&timespec(0)), called)?;
            time = now();
        }
        self.ahead.on_waited(time.since(woken));
        Ok(())
    }

    /// Sleep until `deadline` or until `also` is readable, ignoring the watched descriptors.
    pub fn nap(&mut self, deadline: Time, also: &impl AsFd) -> Result<()> {
        self.alarm.set(deadline)?;
        let mut watched = [
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(also, PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Ok(Err(error).trying(|| "wait for room".into())?),
        }
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
