//! Shared objects of headers, and the calls of their functions.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use libloading::Library;
use serde::Deserialize;

/// Names of the functions of headers, by their numbers in `object.c`.
pub const CALLS: [&str; 12] = [
    "",
    "transport_start",
    "transport_receive",
    "transport_timer",
    "transport_host_timer",
    "transport_pull",
    "scheduler_rank",
    "scheduler_sent",
    "scheduler_arrived",
    "admission_offer",
    "admission_open",
    "admission_report",
];
/// Maximum bytes of a state.
const MOST_STATE: u64 = 1 << 20;
/// Maximum calls at one instant: a header that never lets the time advance makes more.
const MOST_CALLS: u32 = 20_000_000;

static UNWATCHED: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNWATCHED).cast_mut());

/// Note the number of the running function of a header, else 0, in the first four bytes of a file.
pub fn watch(file: &File) -> io::Result<()> {
    let (access, file) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping, which is never unmapped. A page is aligned for the number.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4, access, libc::MAP_SHARED, file, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    RUNNING.store(page.cast(), Relaxed);
    Ok(())
}

/// Zeroed memory of C structures, aligned to 8 bytes, at a fixed address.
#[derive(Debug)]
pub(crate) struct Memory(NonNull<[u64]>);

// SAFETY: the memory belongs to the value alone, and shared values are only read.
unsafe impl Send for Memory {}
// SAFETY: the same.
unsafe impl Sync for Memory {}

impl Memory {
    /// Return memory of at least so many bytes.
    pub fn new(bytes: usize) -> Self {
        vec![0; bytes.div_ceil(8)].into()
    }

    pub fn start(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl From<Vec<u64>> for Memory {
    fn from(words: Vec<u64>) -> Self {
        Self(NonNull::from(Box::leak(words.into_boxed_slice())))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `from` leaked it, and nothing frees it before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Error of a shared object that the simulator cannot use.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It cannot be loaded.
    #[error("{0}: {1}")]
    Unusable(String, libloading::Error),
    /// It is another kind of header, was compiled with another interface, or has too large a state.
    #[error("{0}: {1}")]
    Misfit(String, &'static str),
}

/// `cellbed_facts`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    kind: u64,
    sizes: u64,
    /// Bytes of `struct flow_state` or `struct user_state`, and of `struct host_state` or `struct cell_state`.
    pub many: u64,
    pub other: u64,
    constants: u64,
    pub ports: u64,
    pub mark_above: u64,
    pub users: u64,
    option: u64,
}

type Call = unsafe extern "C" fn(*mut Sim, u32, *mut c_void, u64, u64) -> u64;

struct Object {
    name: String,
    file: PathBuf,
    numbers: Vec<serde_json::Number>,
    constants: Memory,
    facts: Facts,
    call: Call,
    _library: Library,
}

/// A header of a kind (`CELLBED_KIND`, `CELLBED_SIZES`) as a shared object, with values of its constants.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Reference", bound = "")]
pub struct Header<const KIND: u64, const SIZES: u64>(Arc<Object>);

/// A header in a description: its name in errors, the shared object, and the values of its constants in order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    name: String,
    file: PathBuf,
    #[serde(default)]
    constants: Vec<serde_json::Number>,
}

impl<const KIND: u64, const SIZES: u64> TryFrom<Reference> for Header<KIND, SIZES> {
    type Error = HeaderError;

    fn try_from(reference: Reference) -> Result<Self, HeaderError> {
        let Reference {
            name,
            file,
            constants: numbers,
        } = reference;
        let unusable = |error| HeaderError::Unusable(name.clone(), error);
        // SAFETY: objects of headers run no code when loaded, and `object.c` has these symbols.
        let (library, facts, call) = unsafe {
            let library = Library::new(&file).map_err(unusable)?;
            let facts = **library
                .get::<*const Facts>(c"cellbed_facts")
                .map_err(unusable)?;
            let call = *library.get(c"cellbed_call").map_err(unusable)?;
            (library, facts, call)
        };
        let text = if facts.kind != KIND {
            "a header for another key: it includes another one of transport.h, scheduler.h and admission.h"
        } else if facts.sizes != SIZES || facts.constants != numbers.len() as u64 {
            "compiled with another version of the interface, or CONSTANTS depend on an #if"
        } else if facts.many.max(facts.other) > MOST_STATE {
            "a structure of its state is larger than 1 MiB"
        } else {
            let bits = numbers.iter().map(|number| match number.as_u64() {
                Some(whole) => whole,
                None => number.as_f64().unwrap_or_default().to_bits(),
            });
            return Ok(Self(Arc::new(Object {
                name,
                file,
                constants: bits.collect::<Vec<u64>>().into(),
                numbers,
                facts,
                call,
                _library: library,
            })));
        };
        Err(HeaderError::Misfit(name, text))
    }
}

impl<const KIND: u64, const SIZES: u64> Header<KIND, SIZES> {
    pub(crate) fn facts(&self) -> Facts {
        self.0.facts
    }

    /// Return whether the header has `SCHEDULER_FLOWS` or `ADMISSION_REPLACES`.
    pub fn option(&self) -> bool {
        self.0.facts.option != 0
    }

    /// Return the header in a simulation. many: number of states of flows or users that exist from the start.
    pub(crate) fn running(&self, many: u32, seed: u64) -> Running {
        Running {
            states: Memory::new(self.0.facts.many as usize * many as usize),
            object: Arc::clone(&self.0),
            random: seed,
            failure: None,
            instant: (0, 0),
        }
    }
}

impl<const KIND: u64, const SIZES: u64> fmt::Debug for Header<KIND, SIZES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl<const KIND: u64, const SIZES: u64> PartialEq for Header<KIND, SIZES> {
    fn eq(&self, other: &Self) -> bool {
        self.0.file == other.0.file && self.0.numbers == other.0.numbers
    }
}

/// The answer of the simulator to a question of a header: its number, and three values.
pub(crate) type Answer<'a> = &'a mut dyn FnMut(u32, *mut c_void, u64, u64) -> Result<u64, String>;

/// `struct sim`, and what C does not know.
#[repr(C)]
struct Sim<'a> {
    now: u64,
    random: u64,
    constants: *const c_void,
    answer: unsafe extern "C" fn(*mut Sim, u32, *mut c_void, u64, u64) -> u64,
    answers: Answer<'a>,
    failure: Option<String>,
}

/// Answer a question of C.
unsafe extern "C" fn answer(sim: *mut Sim, question: u32, a: *mut c_void, b: u64, c: u64) -> u64 {
    // SAFETY: C passes the structure of the running call, which waits; question 0 comes with a text.
    let (sim, found) = unsafe {
        let sim = &mut *sim;
        let found = match question {
            0 => Err(CStr::from_ptr(a.cast()).to_string_lossy().into_owned()),
            _ => (sim.answers)(question, a, b, c),
        };
        (sim, found)
    };
    found.unwrap_or_else(|text| {
        sim.failure.get_or_insert(text);
        0
    })
}

/// A header in a simulation.
pub(crate) struct Running {
    object: Arc<Object>,
    /// States of users.
    pub states: Memory,
    random: u64,
    failure: Option<String>,
    /// The latest instant, and the number of calls then.
    instant: (u64, u32),
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.object.name)
    }
}

impl Running {
    pub fn facts(&self) -> Facts {
        self.object.facts
    }

    pub fn option(&self) -> bool {
        self.object.facts.option != 0
    }

    /// Return the error that ended the use of the header: its name, the function and the text.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Call a function of the header; `None` once it has failed.
    ///
    /// # Safety
    /// The arguments are what `object.c` expects.
    pub unsafe fn call(
        &mut self,
        function: u32,
        now: u64,
        answers: Answer<'_>,
        (a, b, c): (*mut c_void, u64, u64),
    ) -> Option<u64> {
        if self.failure.is_some() {
            return None;
        }
        let mut sim = Sim {
            now,
            random: self.random,
            constants: self.object.constants.start(),
            answer,
            answers,
            failure: None,
        };
        // SAFETY: a static variable, or a page that stays mapped.
        let running = unsafe { &*RUNNING.load(Relaxed) };
        running.store(function, Relaxed);
        // SAFETY: of the caller.
        let found = unsafe { (self.object.call)(&raw mut sim, function, a, b, c) };
        running.store(0, Relaxed);
        self.random = sim.random;
        let calls = if self.instant.0 == now {
            self.instant.1 + 1
        } else {
            1
        };
        self.instant = (now, calls);
        if let Some(text) = sim.failure {
            self.fail(function, &text);
        } else if calls > MOST_CALLS {
            self.fail(
                function,
                "20 million calls without a later time: a timer for the same instant?",
            );
        }
        self.failure.is_none().then_some(found)
    }

    /// End the use of the header by an error of a function.
    pub fn fail(&mut self, function: u32, text: &str) {
        let (name, at) = (&self.object.name, self.instant.0);
        let text = format!("{name}: {} at {at} ps: {text}", CALLS[function as usize]);
        self.failure.get_or_insert(text);
    }
}
