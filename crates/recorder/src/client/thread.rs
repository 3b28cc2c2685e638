//! A path over a socket, in a separate thread, so that no disk or terminal can delay a packet.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use cellbed_link::{Duration, Time};

use super::{Event, Path, Relayed, RunRequest};
use crate::error::{Error, Result, Trying};
use crate::secure::{Secret, random_bytes};
use crate::socket::{Inbox, Local, Outbox, Socket, now, sharpen_timers, sleep_until};

/// Maximum time between checks for orders.
const LOOK: Duration = Duration::from_millis(20);

/// Time span of packets sent in one burst of a saturation: each wake-up costs more than a packet.
const QUANTUM: Duration = Duration::from_micros(250);

/// Pause between two reads if many packets arrive: each read costs more than a packet, and the kernel has stamped the
/// packets already.
const PAUSE: Duration = Duration::from_micros(100);
const MANY_IN: Duration = Duration::from_millis(10);
const MANY: usize = 100;

/// Time of refused packets until a socket without arrivals is replaced: a modem that went away and came back is a
/// new interface with the same name.
const REPLACE: Duration = Duration::from_secs(3);

/// An order to a path.
#[derive(Clone, Debug)]
pub enum Order {
    Run(RunRequest),
    /// Ends the sending of a run.
    Stop(u32),
    /// Messages of the companion.
    Take(Vec<Relayed>),
    /// Sets the companion, which has the same token.
    Join {
        token: [u8; 16],
        companion: Sender<Self>,
        /// True if the path [relies](Path::rely_on_companion) on the companion.
        relies: bool,
    },
    /// Ends the session and the thread.
    Leave,
}

/// Message from a path's thread.
pub enum Message {
    Events(Vec<Event>),
    /// Packets lost since the last such message because this machine's receive buffer was full.
    Overflows(u64),
    /// The thread has ended with an error.
    Failed(Error),
}

/// A path in its thread. The thread ends when this value is dropped.
pub struct PathThread {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl PathThread {
    /// Open the socket and start the thread. Messages of the path go to `messages`, each with `name`.
    pub fn start<Name: Copy + Send + 'static>(
        name: Name,
        server: SocketAddr,
        interface: Option<&str>,
        secret: &Secret,
        messages: Sender<(Name, Message)>,
    ) -> Result<Self> {
        let local = Local::towards(server, interface);
        let socket = Socket::bind(&local)?;
        let path = Path::new(server, secret.clone(), &random_bytes()?, now());
        let (orders, receiver) = channel();
        let mut loop_ = Loop {
            server,
            local,
            socket,
            path,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            orders: receiver,
            companion: None,
            refused_since: None,
            recent: (Time::ZERO, 0),
            busy: false,
        };
        let run = move || {
            sharpen_timers();
            let send = |message| messages.send((name, message)).is_ok();
            if let Err(error) = loop_.run(&send) {
                send(Message::Failed(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name("path".into())
            .spawn(run)
            .trying(|| "start the thread of a path".into())?;
        Ok(Self {
            orders,
            thread: Some(thread),
        })
    }

    /// Send this path's requests over `other`; both act for each other with the secret `token`.
    pub fn rely_on(&self, other: &Self, token: [u8; 16]) {
        for (path, companion, relies) in [(self, other, true), (other, self, false)] {
            let companion = companion.orders.clone();
            path.send(Order::Join {
                token,
                companion,
                relies,
            });
        }
    }

    /// Send an order to the path. If the thread has ended, it has reported its error.
    pub fn send(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

impl Drop for PathThread {
    fn drop(&mut self) {
        self.send(Order::Leave); // the channel may stay open in the companion
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Loop {
    server: SocketAddr,
    local: Local,
    socket: Socket,
    path: Path,
    inbox: Inbox,
    outbox: Outbox,
    orders: Receiver<Order>,
    companion: Option<Sender<Order>>,
    refused_since: Option<Time>,
    /// Begin of the current count of packets, and the count.
    recent: (Time, usize),
    busy: bool,
}

impl Loop {
    fn run(&mut self, report: &dyn Fn(Message) -> bool) -> Result<()> {
        loop {
            let start = now();
            if !self.take_orders(start) {
                self.path.leave(&mut self.outbox);
                let _ = self.socket.send(&mut self.outbox);
                return Ok(());
            }
            self.send(start)?;
            let deadline = self
                .path
                .next_event()
                .max(start + QUANTUM)
                .min(start + LOOK);
            self.socket.wait(deadline)?;
            if self.busy {
                sleep_until((start + PAUSE).min(deadline));
            }
            self.receive()?;
            self.send_to_companion();
            let events: Vec<Event> = self.path.events().collect();
            if !events.is_empty() && !report(Message::Events(events)) {
                return Ok(());
            }
            let overflows = self.inbox.take_overflows();
            if overflows > 0 {
                report(Message::Overflows(overflows));
            }
        }
    }

    /// Execute orders; return `false` when the sender has ended.
    fn take_orders(&mut self, now: Time) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Run(request)) => self.path.run(request, now),
                Ok(Order::Stop(number)) => self.path.stop(number, now),
                Ok(Order::Take(relayed)) => {
                    for relayed in relayed {
                        self.path.take_relayed(relayed, now);
                    }
                }
                Ok(Order::Join {
                    token,
                    companion,
                    relies,
                }) => {
                    self.path.join(token, now);
                    self.companion = Some(companion);
                    if relies {
                        self.path.rely_on_companion(now);
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Order::Leave) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn send_to_companion(&mut self) {
        let relayed = self.path.outgoing();
        if let Some(companion) = self.companion.as_ref().filter(|_| !relayed.is_empty()) {
            // If the companion has ended, the path notices missing replies.
            let _ = companion.send(Order::Take(relayed));
        }
    }

    fn send(&mut self, start: Time) -> Result<()> {
        self.path.step(start, &mut self.outbox);
        if self.outbox.is_empty() {
            return Ok(());
        }
        let departed = now();
        let refused = self.socket.send(&mut self.outbox)?;
        self.path.on_departure(departed);
        match refused {
            0 => self.refused_since = None,
            _ => self.replace_socket(departed),
        }
        Ok(())
    }

    /// Open another socket if this one has failed for a while. If that is not possible yet, keep the old one.
    fn replace_socket(&mut self, now: Time) {
        let since = *self.refused_since.get_or_insert(now);
        if now.since(since) >= REPLACE && self.path.is_silent() {
            self.refused_since = Some(now);
            match Socket::bind(&self.local) {
                Ok(socket) => {
                    tracing::info!("packets were refused: another socket for {:?}", self.local);
                    self.socket = socket;
                    self.inbox = Inbox::default();
                }
                Err(error) => tracing::info!("packets are refused, the socket stays: {error}"),
            }
        }
    }

    fn count(&mut self, packets: usize, now: Time) {
        self.recent.1 += packets;
        if now.since(self.recent.0) >= MANY_IN {
            self.busy = self.recent.1 >= MANY;
            self.recent = (now, 0);
        }
    }

    fn receive(&mut self) -> Result<()> {
        // Enough rounds to empty a full buffer; then it is time to send again.
        for _ in 0..16 {
            let count = self.socket.receive(&mut self.inbox)?;
            let now = now();
            self.count(count, now);
            for packet in self.inbox.packets() {
                if packet.from == self.server {
                    self.path.receive(packet.arrived, now, packet.bytes);
                }
            }
            if count == 0 {
                break;
            }
        }
        Ok(())
    }
}
