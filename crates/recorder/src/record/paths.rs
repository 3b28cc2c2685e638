//! The paths to a server, and their messages.

use crate::recording::Role;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use cellbed_link::{Duration, Time};

use super::{Notice, Watch};
use crate::client::{Event, Message, Order, PathThread, Ways};
use crate::error::{Error, Result};

use crate::secure::Secret;
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
    /// Interface of control and downloads, the light workload, calibration, and both workloads in turn; `None`: by the
    /// routing table.
    pub first: Option<String>,
    /// Interface of the heavy workload, if separate.
    pub second: Option<String>,
}

/// The paths to a server, and their messages.
pub(super) struct Paths {
    access: Access,
    second: Option<PathThread>,
    first: PathThread,
    sender: Sender<(Role, Message)>,
    messages: Receiver<(Role, Message)>,
    /// Paths without a session yet, by workload, and the begin of the wait.
    unanswered: Vec<(Role, Time)>,
    offer: Option<Offer>,
}

impl Paths {
    /// Open the first path. The handshake continues in the background.
    pub(super) fn connect(access: Access) -> Result<Self> {
        let (sender, messages) = channel();
        let first = start(Role::Light, &access, &sender)?;
        Ok(Self {
            access,
            second: None,
            first,
            sender,
            messages,
            unanswered: vec![(Role::Light, now())],
            offer: None,
        })
    }

    /// Open the separate path of the heavy workload.
    pub(super) fn open_second(&mut self) -> Result<()> {
        self.second = Some(start(Role::Heavy, &self.access, &self.sender)?);
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
    pub(super) fn receive(&mut self, watch: Watch<'_>) -> Result<Option<Message>> {
        match self.messages.recv_timeout(LOOK) {
            Ok((_, Message::Failed(error))) => Err(error),
            Ok((path, message)) => {
                if let Message::Events(events) = &message {
                    self.look_at(path, events, watch)?;
                }
                Ok(Some(message))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let late = |since: &Time| now().since(*since) > CONNECT;
                match self.unanswered.iter().find(|(_, since)| late(since)) {
                    Some((path, _)) => Err(self.no_answer(*path)),
                    None => Ok(None),
                }
            }
        }
    }

    fn no_answer(&self, path: Role) -> Error {
        let interface = match path {
            Role::Heavy => &self.access.second,
            _ => &self.access.first,
        };
        let way = interface.as_ref().map(|name| format!(" by {name}"));
        Error::Failed(format!(
            "no answer from {}{} in {:.0} s. Is `cellbed-recorder serve` running there, with the same secret and \
             version {VERSION} of the protocol (this release), and do TCP and UDP to that port pass?",
            self.access.server,
            way.unwrap_or_default(),
            CONNECT.as_secs_f64(),
        ))
    }

    fn look_at(&mut self, path: Role, events: &[Event], watch: Watch<'_>) -> Result<()> {
        for event in events {
            match event {
                Event::Connected(offer) => {
                    self.unanswered.retain(|(other, _)| *other != path);
                    self.offer = Some(*offer);
                    watch(Notice::Connected(*offer));
                }
                Event::Silent => watch(Notice::Silent),
                Event::Resumed => watch(Notice::Resumed),
                Event::Rejected(reason)
                    if self.unanswered.iter().any(|(other, _)| *other == path) =>
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

/// Start a path. The control of both goes over the interface of the first, which is never saturated for long.
fn start(path: Role, access: &Access, sender: &Sender<(Role, Message)>) -> Result<PathThread> {
    let ways = Ways {
        server: access.server,
        probes: match path {
            Role::Heavy => access.second.clone(),
            _ => access.first.clone(),
        },
        control: access.first.clone(),
    };
    PathThread::start(path, ways, &access.secret, sender.clone())
}
