//! The paths to a server, and their messages.

use crate::recording::Role;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use cellbed_link::{Duration, Time};

use super::{Notice, Watch};
use crate::client::{Event, Message, Order, PathThread};
use crate::error::{Error, Result};

use crate::secure::{Secret, random_bytes};
use crate::socket::now;
use crate::wire::{Offer, VERSION};

/// Maximum wait for a server's first answer.
const CONNECT: Duration = Duration::from_secs(15);

const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Interfaces that reach a server, and the secret.
#[derive(Clone, Debug)]
pub struct Access {
    pub server: SocketAddr,
    pub secret: Secret,
    /// Interface of the light workload, of calibration, and of both workloads in turn; `None`: by the routing table.
    pub first: Option<String>,
    /// Interface of the heavy workload, if separate.
    pub second: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    First,
    Second,
}

/// The paths to a server, and their messages.
pub(super) struct Paths {
    access: Access,
    /// Dropped before the first path, on which it may rely.
    second: Option<PathThread>,
    first: PathThread,
    sender: Sender<(Name, Message)>,
    messages: Receiver<(Name, Message)>,
    /// Paths without a session yet, and the begin of the wait.
    unanswered: Vec<(Name, Time)>,
    offer: Option<Offer>,
}

impl Paths {
    /// Open the first path. The handshake continues in the background.
    pub(super) fn connect(access: Access) -> Result<Self> {
        let (sender, messages) = channel();
        let first = start(Name::First, &access, access.first.as_deref(), &sender)?;
        Ok(Self {
            access,
            second: None,
            first,
            sender,
            messages,
            unanswered: vec![(Name::First, now())],
            offer: None,
        })
    }

    /// Open the separate path of the heavy workload. With `leaning`, the path sends its requests over the
    /// first.
    pub(super) fn open_second(&mut self, leaning: bool) -> Result<()> {
        let interface = self.access.second.as_deref();
        let second = start(Name::Second, &self.access, interface, &self.sender)?;
        if leaning {
            second.rely_on(&self.first, random_bytes()?);
        }
        self.second = Some(second);
        Ok(())
    }

    /// Send an order to the path of a workload.
    pub(super) fn send(&self, role: Role, order: Order) {
        let path = match (&self.second, role) {
            (Some(second), Role::Heavy) => second,
            _ => &self.first,
        };
        path.send(order);
    }

    /// Return the server's latest offer.
    pub(super) fn offer(&self) -> Option<Offer> {
        self.offer
    }

    /// Return whether the server has not answered yet.
    pub(super) fn is_connecting(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Return the next message, or `None` after a short time.
    pub(super) fn receive(&mut self, watch: Watch<'_>) -> Result<Option<(Name, Message)>> {
        match self.messages.recv_timeout(LOOK) {
            Ok((_, Message::Failed(error))) => Err(error),
            Ok((name, message)) => {
                if let Message::Events(events) = &message {
                    self.look_at(name, events, watch)?;
                }
                Ok(Some((name, message)))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let late = |since: &Time| now().since(*since) > CONNECT;
                match self.unanswered.iter().find(|(_, since)| late(since)) {
                    Some((name, _)) => Err(self.no_answer(*name)),
                    None => Ok(None),
                }
            }
        }
    }

    fn no_answer(&self, name: Name) -> Error {
        let interface = match name {
            Name::First => &self.access.first,
            Name::Second => &self.access.second,
        };
        let way = interface.as_ref().map(|name| format!(" by {name}"));
        Error::Failed(format!(
            "no answer from {}{} in {:.0} s. Is `cellbed-recorder serve` running there, with the same secret and \
             version {VERSION} or later of the protocol, and does UDP to that port pass?",
            self.access.server,
            way.unwrap_or_default(),
            CONNECT.as_secs_f64(),
        ))
    }

    fn look_at(&mut self, name: Name, events: &[Event], watch: Watch<'_>) -> Result<()> {
        for event in events {
            match event {
                Event::Connected(offer) => {
                    self.unanswered.retain(|(other, _)| *other != name);
                    self.offer = Some(*offer);
                    watch(Notice::Connected(*offer));
                }
                Event::Silent => watch(Notice::Silent),
                Event::Resumed => watch(Notice::Resumed),
                Event::Rejected(reason)
                    if self.unanswered.iter().any(|(other, _)| *other == name) =>
                {
                    let server = self.access.server;
                    return Error::failed(format!("{server} refuses: {reason}"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn start(
    name: Name,
    access: &Access,
    interface: Option<&str>,
    sender: &Sender<(Name, Message)>,
) -> Result<PathThread> {
    let messages = sender.clone();
    PathThread::start(name, access.server, interface, &access.secret, messages)
}
