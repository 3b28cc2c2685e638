//! Congestion control laws of C headers, as shared objects of this process.
//!
//! `python/cellbed/laws/law.h` describes the interface; `host.c` there makes the shared object of a law.

use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

/// The window of a connection (`struct window`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The congestion window, segments.
    pub cwnd: u32,
    /// Window at which slow start ends, segments.
    pub ssthresh: u32,
    /// Pacing rate, bytes of data per second; 0: not paced.
    pub pacing_rate: u64,
}

/// An acknowledgement (`struct sample`), in segments and microseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "law.h has the meaning of each")]
pub struct Sample {
    pub now_us: u64,
    pub acked: u32,
    pub lost: u32,
    pub in_flight: u32,
    pub prior_in_flight: u32,
    pub rtt_us: u32,
    pub srtt_us: u32,
    pub delivered: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub mss: u32,
    pub flags: u32,
}

/// Threshold of slow start before the first loss.
pub const UNLIMITED: u32 = 0x7fff_ffff;
/// Maximum window, segments.
pub const LARGEST: u32 = 1 << 24;
/// Flag: the application had less to send than the window allowed.
pub const APP_LIMITED: u32 = 1;
/// Flag: the window limits the sender.
pub const WINDOW_LIMITED: u32 = 2;
/// Flag: losses are being repaired.
pub const REPAIR: u32 = 4;

/// Maximum number of variables that a law shows (`LAW_MOST_SHOWN`).
pub const MOST_SHOWN: usize = 4;

/// An event (`enum event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// Losses, once per window.
    Loss = 0,
    /// A timeout, after the losses.
    Timeout = 1,
}

/// Error of a shared object that is no law.
#[derive(Debug, thiserror::Error)]
pub enum LawError {
    /// It cannot be loaded, or lacks a symbol.
    #[error("{0}")]
    NotALaw(#[from] libloading::Error),
    /// It was compiled with another version of the interface.
    #[error("law '{0}' was compiled with another version of law.h: empty the cache of laws")]
    OtherInterface(String),
}

type Init = unsafe extern "C" fn(*mut c_void, *mut Window);
type Ack = unsafe extern "C" fn(*mut c_void, *mut Window, *const Sample);
type OnEvent = unsafe extern "C" fn(*mut c_void, *mut Window, u32);
type Show = unsafe extern "C" fn(*const c_void, *mut u64);

/// A loaded law. It is never unloaded: connections refer to it.
pub struct Law {
    name: String,
    owns_window: bool,
    size: usize,
    init: Init,
    ack: Ack,
    event: OnEvent,
    show: Show,
    _library: Library,
}

static LAWS: Mutex<Vec<&'static Law>> = Mutex::new(Vec::new());

/// Load the law of a shared object under a name, and replace a previous law of this name.
pub fn load(name: &str, path: &Path) -> Result<&'static Law, LawError> {
    // SAFETY: `host.c` and the law run no code when loaded. The symbols have their types from `host.c`, in the version
    // of the interface that is compared first.
    let law = unsafe {
        let library = Library::new(path)?;
        if **library.get::<*const u32>(c"cellbed_law_interface")? != INTERFACE {
            return Err(LawError::OtherInterface(name.to_owned()));
        }
        Law {
            name: name.to_owned(),
            owns_window: **library.get::<*const u32>(c"cellbed_law_owns_window")? != 0,
            size: **library.get::<*const u32>(c"cellbed_law_size")? as usize,
            init: *library.get::<Init>(c"cellbed_law_init")?,
            ack: *library.get::<Ack>(c"cellbed_law_ack")?,
            event: *library.get::<OnEvent>(c"cellbed_law_event")?,
            show: *library.get::<Show>(c"cellbed_law_show")?,
            _library: library,
        }
    };
    let law: &'static Law = Box::leak(Box::new(law));
    let mut laws = LAWS.lock().unwrap_or_else(PoisonError::into_inner);
    laws.retain(|other| other.name != name);
    laws.push(law);
    Ok(law)
}

/// Version of the interface: bytes of [`Window`] and [`Sample`].
const INTERFACE: u32 = (size_of::<Window>() as u32) << 16 | size_of::<Sample>() as u32;

/// Return the loaded law of a name.
pub fn find(name: &str) -> Option<&'static Law> {
    let laws = LAWS.lock().unwrap_or_else(PoisonError::into_inner);
    laws.iter().copied().find(|law| law.name == name)
}

impl Law {
    /// Return the name given to [`load`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Return whether the law sets the window during repairs, too (`LAW_OWNS_WINDOW`).
    pub fn owns_window(&self) -> bool {
        self.owns_window
    }
}

impl fmt::Debug for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Law {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Law {}

/// The state of a law in a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    law: &'static Law,
    /// `struct law`, aligned for every type that a law may use.
    state: Box<[u64]>,
}

impl Connection {
    /// Begin a connection with a window, which the law may change.
    pub fn new(law: &'static Law, window: &mut Window) -> Self {
        let mut state = vec![0; law.size.div_ceil(8).max(1)].into_boxed_slice();
        // SAFETY: the state has the size that the law states; the law uses both arguments during the call only.
        unsafe { (law.init)(state.as_mut_ptr().cast(), window) };
        Self { law, state }
    }

    /// Return the law.
    pub fn law(&self) -> &'static Law {
        self.law
    }

    /// Take in an acknowledgement.
    pub fn ack(&mut self, window: &mut Window, sample: &Sample) {
        // SAFETY: as of `new`.
        unsafe { (self.law.ack)(self.state.as_mut_ptr().cast(), window, sample) };
    }

    /// Take in an event.
    pub fn event(&mut self, window: &mut Window, event: Event) {
        // SAFETY: as of `new`.
        unsafe { (self.law.event)(self.state.as_mut_ptr().cast(), window, event as u32) };
    }

    /// Return the variables that the law shows, then zeros.
    pub fn shown(&self) -> [u64; MOST_SHOWN] {
        let mut shown = [0; MOST_SHOWN];
        // SAFETY: as of `new`; a law that shows more variables is not compiled (`shown.h`).
        unsafe { (self.law.show)(self.state.as_ptr().cast(), shown.as_mut_ptr()) };
        shown
    }
}
