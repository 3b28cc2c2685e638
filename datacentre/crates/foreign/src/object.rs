//! Shared objects of headers, and the calls of their functions.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use libloading::Library;
use serde::Deserialize;

use crate::memory::Memory;
use crate::watch::{CALLS, watched};

/// Maximum bytes of a state of a header.
const MOST_STATE: u64 = 1 << 20;
/// Maximum calls at one instant: a header that never lets the time advance makes more.
const MOST_CALLS: u32 = 20_000_000;

/// Error of a shared object that the simulator cannot use.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It cannot be loaded, or lacks a function.
    #[error("{0}: {1}")]
    Unusable(String, libloading::Error),
    /// Its facts do not fit.
    #[error("{0}: {1}")]
    Misfit(String, String),
}

/// The functions of a kind of header.
pub trait Functions: Sized + Send + Sync + 'static {
    /// Number and name of the kind in `object.c`, and the sizes of its structures.
    #[doc(hidden)]
    const KIND: (u64, &'static str, u64);

    /// Return the functions of a library.
    ///
    /// # Safety
    /// The library was compiled from this kind of header.
    #[doc(hidden)]
    unsafe fn find(library: &Library) -> Result<Self, libloading::Error>;
}

/// `cellbed_facts` of `object.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    kind: u64,
    sizes: u64,
    /// Bytes of `struct flow_state` or `struct user_state`.
    pub many: u64,
    /// Bytes of `struct host_state` or `struct cell_state`.
    pub other: u64,
    constants: u64,
    pub ports: u64,
    pub mark_above: u64,
    pub users: u64,
    pub option: u64,
}

struct Inner<F> {
    name: String,
    file: PathBuf,
    constants: Memory,
    bits: Vec<u64>,
    facts: Facts,
    functions: F,
    _library: Library,
}

// SAFETY: nothing writes to the constants once they are set.
unsafe impl<F: Sync> Sync for Inner<F> {}

/// A header as a shared object, with values of its constants.
#[derive(Deserialize)]
#[serde(try_from = "Reference", bound = "")]
pub struct Header<F: Functions>(Arc<Inner<F>>);

/// A header in a description: its name in errors, the shared object, and the values of its constants in order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    name: String,
    file: PathBuf,
    #[serde(default)]
    constants: Vec<serde_json::Number>,
}

impl<F: Functions> TryFrom<Reference> for Header<F> {
    type Error = HeaderError;

    fn try_from(reference: Reference) -> Result<Self, HeaderError> {
        let Reference {
            name,
            file,
            constants,
            ..
        } = reference;
        let misfit = |text: String| HeaderError::Misfit(name.clone(), text);
        let unusable = |error| HeaderError::Unusable(name.clone(), error);
        // SAFETY: objects of headers run no code when loaded (`object.c`).
        let library = unsafe { Library::new(&file) }.map_err(unusable)?;
        // SAFETY: only the kind is read, which all versions have first; then the sizes and the rest, as in `object.c`.
        let facts = unsafe {
            **library
                .get::<*const Facts>(c"cellbed_facts")
                .map_err(unusable)?
        };
        let (kind, what, sizes) = F::KIND;
        if facts.kind != kind {
            return Err(misfit(format!(
                "it does not include {what}.h: not a header of this kind"
            )));
        }
        if facts.sizes != sizes || facts.constants != constants.len() as u64 {
            let text =
                "it was compiled with another interface, or hides its CONSTANTS behind an #if";
            return Err(misfit(text.to_owned()));
        }
        if facts.many.max(facts.other) > MOST_STATE {
            return Err(misfit(format!(
                "its state is larger than {MOST_STATE} bytes"
            )));
        }
        // SAFETY: the kind was compared.
        let functions = unsafe { F::find(&library) }.map_err(unusable)?;
        let bits = |number: &serde_json::Number| match number.as_u64() {
            Some(whole) => whole,
            None => number.as_f64().unwrap_or_default().to_bits(),
        };
        let bits: Vec<u64> = constants.iter().map(bits).collect();
        let memory = Memory::new(bits.len() * 8);
        // SAFETY: the memory has as many words, and no other user.
        unsafe { ptr::copy_nonoverlapping(bits.as_ptr(), memory.start().cast(), bits.len()) };
        Ok(Self(Arc::new(Inner {
            name,
            file,
            constants: memory,
            bits,
            facts,
            functions,
            _library: library,
        })))
    }
}

impl<F: Functions> Header<F> {
    pub(crate) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    pub(crate) fn functions(&self) -> &F {
        &self.0.functions
    }

    /// Return the option of the kind: `SCHEDULER_FLOWS` or `ADMISSION_REPLACES`.
    pub fn option(&self) -> bool {
        self.0.facts.option != 0
    }
}

impl<F: Functions> Clone for Header<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Functions> fmt::Debug for Header<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl<F: Functions> PartialEq for Header<F> {
    fn eq(&self, other: &Self) -> bool {
        self.0.file == other.0.file && self.0.bits == other.0.bits
    }
}

/// `struct sim` of `simulation.h`.
#[repr(C)]
pub(crate) struct Sim {
    now: u64,
    random: u64,
    constants: *const c_void,
    fail: extern "C" fn(*mut Sim, *const c_char),
    calls: *const c_void,
    /// The simulator's side of the calls.
    pub simulator: *mut c_void,
    // Unknown to C.
    failure: Option<String>,
}

impl Sim {
    /// Keep the first error of a call.
    pub fn refuse(&mut self, text: impl Into<String>) {
        self.failure.get_or_insert_with(|| text.into());
    }
}

extern "C" fn fail(sim: *mut Sim, text: *const c_char) {
    // SAFETY: C passes the `struct sim` of the call, and a string (or nothing).
    let (sim, text) = unsafe {
        let text = (!text.is_null()).then(|| CStr::from_ptr(text));
        (&mut *sim, text)
    };
    sim.refuse(text.map_or_else(String::new, |it| it.to_string_lossy().into_owned()));
}

/// A header in a simulation.
#[derive(Debug)]
pub(crate) struct Running<F: Functions> {
    header: Header<F>,
    random: u64,
    failure: Option<String>,
    /// Calls at the latest instant.
    instant: (u64, u32),
}

impl<F: Functions> Running<F> {
    pub fn new(header: Header<F>, seed: u64) -> Self {
        Self {
            header,
            random: seed,
            failure: None,
            instant: (0, 0),
        }
    }

    pub fn header(&self) -> &Header<F> {
        &self.header
    }

    /// Return the error that ended the use of the header: its name, the function and the text.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Call a function of the header, unless it has failed. calls, simulator: of `struct sim`.
    pub fn call<R>(
        &mut self,
        number: u32,
        now: u64,
        (calls, simulator): (*const c_void, *mut c_void),
        call: impl FnOnce(&F, *mut Sim) -> R,
    ) -> Option<R> {
        if self.failure.is_some() {
            return None;
        }
        let mut sim = Sim {
            now,
            random: self.random,
            constants: self.header.0.constants.start(),
            fail,
            calls,
            simulator,
            failure: None,
        };
        let found = watched(number, || call(self.header.functions(), &raw mut sim));
        self.random = sim.random;
        if self.instant.0 != now {
            self.instant = (now, 0);
        }
        self.instant.1 += 1;
        if self.instant.1 > MOST_CALLS {
            sim.refuse(format!(
                "{MOST_CALLS} calls at {now} ps: a timer that is set again for the same instant?"
            ));
        }
        if let Some(text) = sim.failure {
            self.fail(number, &text);
            return None;
        }
        Some(found)
    }

    /// End the use of the header by an error of a function.
    pub fn fail(&mut self, number: u32, text: &str) {
        let name = &self.header.0.name;
        let (function, at) = (CALLS[number as usize], self.instant.0);
        self.failure
            .get_or_insert_with(|| format!("{name}: {function} at {at} ps: {text}"));
    }
}

/// Return no calls of a header that needs none.
pub(crate) const NONE: (*const c_void, *mut c_void) = (ptr::null(), ptr::null_mut());

/// Return an optional function.
pub(crate) fn optional<T: Copy>(library: &Library, name: &CStr) -> Option<T> {
    // SAFETY: the headers of the interface give each of these names its type.
    unsafe { library.get::<T>(name) }.ok().map(|it| *it)
}
