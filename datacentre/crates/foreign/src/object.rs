//! Shared objects of headers, and the calls of their functions.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

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
/// Maximum calls at one instant: a header that never lets the time advance makes more.
const MOST_CALLS: u32 = 20_000_000;

static UNWATCHED: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNWATCHED).cast_mut());

/// The first error of a header.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Return the first error of a header in this process, which ended the use of all headers: its name, the function and
/// the text.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

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

/// Zeroed memory of an array of C structures, at a fixed address. An access behind the end crashes.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Address of the array.
    start: usize,
    /// Address and bytes of the mapping.
    mapping: (usize, usize),
}

impl Memory {
    /// Return memory of so many bytes, a multiple of the structure's alignment.
    pub fn new(bytes: usize) -> Self {
        // Of any machine.
        const PAGE: usize = 1 << 16;
        // Addresses alone, without memory: an index below 0 of 4-byte numbers is one of almost 2^32.
        const GUARD: usize = 1 << 34;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let size = bytes.next_multiple_of(PAGE);
        // SAFETY: a new mapping, whose beginning becomes accessible.
        let base = unsafe {
            let all = size + GUARD;
            let base = libc::mmap(ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0);
            if base == libc::MAP_FAILED || libc::mprotect(base, size, access) != 0 {
                handle_alloc_error(Layout::new::<u64>());
            }
            base.expose_provenance()
        };
        Self {
            start: base + size - bytes,
            mapping: (base, size + GUARD),
        }
    }

    pub fn start(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.start)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (base, all) = self.mapping;
        // SAFETY: the mapping of `new`, which nothing uses any more.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(base), all) };
    }
}

/// `cellbed_facts`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    kind: u64,
    sizes: u64,
    /// Bytes of `struct flow_state` or `struct user_state`.
    pub(crate) many: u64,
    /// Bytes of `struct host_state` or `struct cell_state`.
    pub(crate) other: u64,
    constants: u64,
    /// `TRANSPORT_PORTS`.
    pub ports: u64,
    /// `TRANSPORT_MARK_ABOVE`; 0: never.
    pub mark_above: u64,
    /// `TRANSPORT_USERS`.
    pub users: u64,
    /// 1 with `SCHEDULER_FLOWS` or `ADMISSION_REPLACES`.
    pub option: u64,
}

type Call = unsafe extern "C" fn(*mut Sim, u32, *mut c_void, u64, u64) -> u64;

#[derive(Debug)]
struct Object {
    name: String,
    constants: Vec<u64>,
    facts: Facts,
    call: Call,
    _library: Library,
}

/// A header of a kind (`CELLBED_KIND`, `CELLBED_SIZES`) as a shared object, with values of its constants.
#[derive(Clone, Debug, Deserialize)]
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
    type Error = String;

    fn try_from(reference: Reference) -> Result<Self, String> {
        let Reference {
            name,
            file,
            constants: numbers,
        } = reference;
        let unusable = |error: libloading::Error| format!("{name}: {error}");
        // SAFETY: objects of headers run no code when loaded, and `object.c` has these symbols.
        let (library, facts, call) = unsafe {
            let library = Library::new(&file).map_err(unusable)?;
            let facts = **library
                .get::<*const Facts>(c"cellbed_facts")
                .map_err(unusable)?;
            let call = *library.get(c"cellbed_call").map_err(unusable)?;
            (library, facts, call)
        };
        if [facts.kind, facts.sizes, facts.constants] != [KIND, SIZES, numbers.len() as u64] {
            return Err(format!(
                "{name}: not compiled for this key with this version of the interface: compile it again"
            ));
        }
        let bits = numbers.iter().map(|number| match number.as_u64() {
            Some(whole) => whole,
            None => number.as_f64().unwrap_or_default().to_bits(),
        });
        Ok(Self(Arc::new(Object {
            constants: bits.collect(),
            name,
            facts,
            call,
            _library: library,
        })))
    }
}

impl<const KIND: u64, const SIZES: u64> Header<KIND, SIZES> {
    /// Return its options.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Return the header in a simulation. many, others: number of states of flows or users that exist from the start,
    /// and of states of hosts or cells.
    pub(crate) fn running(&self, many: u32, others: u32, seed: u64) -> Running {
        let facts = self.facts();
        Running {
            states: Memory::new(facts.many as usize * many as usize),
            others: Memory::new(facts.other as usize * others as usize),
            object: Arc::clone(&self.0),
            random: seed,
            instant: (0, 0),
        }
    }
}

impl<const KIND: u64, const SIZES: u64> PartialEq for Header<KIND, SIZES> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
#[derive(Debug)]
pub(crate) struct Running {
    object: Arc<Object>,
    /// States of users.
    pub states: Memory,
    /// States of hosts, or of the cell.
    pub others: Memory,
    random: u64,
    /// The latest instant, and the number of calls then.
    instant: (u64, u32),
}

impl Running {
    pub fn facts(&self) -> Facts {
        self.object.facts
    }

    /// Call a function of the header; `None` once a header has failed.
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
        if failure().is_some() {
            return None;
        }
        let mut sim = Sim {
            now,
            random: self.random,
            constants: self.object.constants.as_ptr().cast(),
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
        let (instant, calls) = self.instant;
        self.instant = (now, if instant == now { calls + 1 } else { 1 });
        if let Some(text) = sim.failure {
            self.fail(function, &text);
        } else if self.instant.1 > MOST_CALLS {
            let text = "20 million calls without a later time: a timer for the same instant?";
            self.fail(function, text);
        }
        failure().is_none().then_some(found)
    }

    /// End the use of all headers by an error of a function.
    pub fn fail(&self, function: u32, text: &str) {
        let (name, at) = (&self.object.name, self.instant.0);
        let place = CALLS[function as usize];
        FAILURE.get_or_init(|| format!("{name}: {place} at {at} ps: {text}"));
    }
}
