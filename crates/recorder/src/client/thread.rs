//! A path over its sockets, in a separate thread, so that no disk or terminal can delay a packet.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use cellbed_link::{Duration, Time};

use super::{Download, Event, Path, RunEnd, RunEvent, RunRequest};
use crate::error::{Error, Result, Trying};
use crate::recording::Role;
use crate::secure::{Secret, random_bytes};
use crate::socket::{
    Flow, Inbox, Local, Outbox, PollFlags, Socket, Stream, now, sharpen_timers, sleep_until, wait,
};

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

/// Time without acknowledgements after which the control connection has ended: while it is opened, and later, when the
/// server has forgotten the session.
const UNANSWERED: Duration = Duration::from_secs(6);
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Maximum time of a download.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(30);

/// An order to a path.
#[derive(Clone, Debug)]
pub enum Order {
    Run(RunRequest),
    /// Fetches files of these sizes by TCP, one after the other, as the run of this number.
    Download(u32, Vec<u64>),
    /// Ends the sending of a run, or its downloads.
    Stop(u32),
    /// Ends the session and the thread.
    Leave,
}

/// Server and interfaces of a path; an interface of `None`: by the routing table.
#[derive(Clone, Debug)]
pub struct Ways {
    pub server: SocketAddr,
    /// Interface of the probes.
    pub probes: Option<String>,
    /// Interface of the control connection and of downloads.
    pub control: Option<String>,
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
    /// Open the socket and start the thread. Messages of the path go to `messages`, each with `path`.
    pub fn start(
        path: Role,
        ways: Ways,
        secret: &Secret,
        messages: Sender<(Role, Message)>,
    ) -> Result<Self> {
        let local = Local::towards(ways.server, ways.probes.as_deref());
        let socket = Socket::bind(&local)?;
        drop(Stream::open(ways.server, ways.control.as_deref())?); // an error if there is no such interface
        let core = Path::new(ways.server, secret, &random_bytes()?, now());
        let (orders, receiver) = channel();
        let mut loop_ = Loop {
            ways,
            local,
            socket,
            stream: None,
            downloads: Arc::default(),
            path: core,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            input: Vec::new(),
            orders: receiver,
            refused_since: None,
            recent: (Time::ZERO, 0),
            busy: false,
        };
        let run = move || {
            sharpen_timers();
            let send: Report = Arc::new(move |message| messages.send((path, message)).is_ok());
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

    /// Send an order to the path. If the thread has ended, it has reported its error.
    pub fn send(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

impl Drop for PathThread {
    fn drop(&mut self) {
        self.send(Order::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Ways {
    fn connect(&self) -> Result<Stream> {
        Stream::connect(self.server, self.control.as_deref())
    }
}

type Report = Arc<dyn Fn(Message) -> bool + Send + Sync>;

struct Loop {
    ways: Ways,
    local: Local,
    socket: Socket,
    /// The control connection.
    stream: Option<Stream>,
    /// Number of the latest downloads; earlier downloads end.
    downloads: Arc<AtomicU32>,
    path: Path,
    inbox: Inbox,
    outbox: Outbox,
    input: Vec<u8>,
    orders: Receiver<Order>,
    refused_since: Option<Time>,
    /// Begin of the current count of packets, and the count.
    recent: (Time, usize),
    busy: bool,
}

impl Loop {
    fn run(&mut self, report: &Report) -> Result<()> {
        loop {
            let start = now();
            if !self.take_orders(start, report) {
                self.downloads.store(0, Ordering::Relaxed);
                self.path.session.leave();
                if let Some(stream) = &mut self.stream {
                    stream.write(self.path.session.output());
                }
                return Ok(());
            }
            self.connect(start);
            self.send(start)?;
            let deadline = self
                .path
                .next_event()
                .max(start + QUANTUM)
                .min(start + LOOK);
            self.wait(deadline)?;
            if self.busy {
                sleep_until((start + PAUSE).min(deadline));
            }
            self.receive()?;
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
    fn take_orders(&mut self, now: Time, report: &Report) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Run(request)) => self.path.run(request, now),
                Ok(Order::Download(run, sizes)) => self.download(run, &sizes, report.clone()),
                Ok(Order::Stop(number)) => {
                    self.path.stop(number, now);
                    let (downloads, order) = (&self.downloads, Ordering::Relaxed);
                    let _ = downloads.compare_exchange(number, 0, order, order);
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Order::Leave) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Fetch files of these sizes in another thread, which reports them as the events of a run.
    fn download(&mut self, run: u32, sizes: &[u64], report: Report) {
        let session = &mut self.path.session;
        let files = sizes
            .iter()
            .map(|bytes| (*bytes, session.file_request(*bytes)));
        let files: Vec<_> = files.collect();
        let (ways, present) = (self.ways.clone(), self.downloads.clone());
        present.store(run, Ordering::Relaxed);
        let fetch_all = move || {
            let is_wanted = || present.load(Ordering::Relaxed) == run;
            let tell = |event| report(Message::Events(vec![Event::Run(run, event)]));
            tell(RunEvent::Began(now()));
            for (bytes, request) in files {
                let started = now();
                let taken = request.and_then(|it| fetch(&ways, bytes, it, started, &is_wanted));
                if !is_wanted() {
                    break;
                }
                tell(RunEvent::Downloaded(Download {
                    bytes,
                    started,
                    taken,
                }));
            }
            let end = RunEnd {
                at: now(),
                complete: true,
                ..RunEnd::default()
            };
            tell(RunEvent::Ended(end));
        };
        // Without a thread the run never ends, and the recording ends without it.
        let _ = std::thread::Builder::new()
            .name("files".into())
            .spawn(fetch_all);
    }

    /// Open the control connection if the session wants it.
    fn connect(&mut self, now: Time) {
        if self.path.session.wants_connection(now) {
            self.stream = self.ways.connect().ok();
            match &self.stream {
                Some(stream) => stream.end_after(UNANSWERED),
                None => self.path.on_closed(now),
            }
        }
    }

    /// Sleep until something happens, and serve the control connection.
    fn wait(&mut self, deadline: Time) -> Result<()> {
        let mut sockets = vec![(self.socket.as_fd(), PollFlags::IN)];
        if let Some(stream) = &self.stream {
            let writes = stream.is_connecting() || !self.path.session.output().is_empty();
            sockets.push((stream.as_fd(), stream.interest(true, writes)));
        }
        if wait(&sockets, deadline)?
            .get(1)
            .is_some_and(|flags| !flags.is_empty())
        {
            self.serve_control();
        }
        Ok(())
    }

    /// Write requests and read replies.
    fn serve_control(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut flow = Flow::Idle;
        if stream.is_connecting() {
            match stream.finish_connecting() {
                true => {
                    stream.end_after(UNACKNOWLEDGED);
                    self.path.session.on_connected();
                }
                false => flow = Flow::Ended,
            }
        }
        if flow != Flow::Ended {
            flow = stream.write(self.path.session.output());
        }
        if flow != Flow::Ended {
            self.input.clear();
            flow = stream.read(&mut self.input);
            self.path.read(now(), &self.input);
        }
        if flow == Flow::Ended {
            self.stream = None;
            self.path.on_closed(now());
        }
    }

    fn send(&mut self, start: Time) -> Result<()> {
        self.path.step(start, &mut self.outbox);
        if let Some(stream) = self
            .stream
            .as_mut()
            .filter(|stream| !stream.is_connecting())
        {
            stream.write(self.path.session.output()); // an error appears when it is read
        }
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
        if now.since(since) >= REPLACE && self.path.session.silent {
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
                if packet.from == self.ways.server {
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

/// Fetch a file over another connection while it is wanted. Return the time until its last byte, if that comes in time.
fn fetch(
    ways: &Ways,
    bytes: u64,
    mut request: Vec<u8>,
    started: Time,
    is_wanted: &dyn Fn() -> bool,
) -> Option<Duration> {
    let mut stream = ways.connect().ok()?;
    let (mut input, mut left) = (Vec::new(), bytes);
    while is_wanted() && now() < started + LONGEST_DOWNLOAD {
        let interest = stream.interest(request.is_empty(), !request.is_empty());
        let ready = wait(&[(stream.as_fd(), interest)], now() + LOOK).ok()?;
        if ready.iter().all(PollFlags::is_empty) {
            continue;
        }
        if stream.is_connecting() && !stream.finish_connecting() {
            return None;
        }
        let mut flow = stream.write(&mut request);
        if request.is_empty() {
            input.clear();
            flow = stream.read(&mut input);
            left = left.saturating_sub(input.len() as u64);
        }
        match (left, flow) {
            (0, _) => return Some(now() - started),
            (_, Flow::Ended) => return None,
            _ => {}
        }
    }
    None
}
