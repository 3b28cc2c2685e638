//! Errors, in sentences that name the object, the place and the remedy.

use std::fmt::Display;

use cellbed_link::graph::table::TableError;
pub use cellbed_netdev::Error as KernelError;
pub(crate) use cellbed_netdev::Trying;

/// An error that stops the emulator or a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid input: place, problem and correct value, in one line.
    #[error("{0}")]
    Input(String),

    /// The kernel refused a request, or a thread has ended.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Return the error of invalid input. Control characters are escaped: messages quote any user input.
    pub(crate) fn input(text: impl Display) -> Self {
        let mut line = String::new();
        for character in text.to_string().chars() {
            match character.is_control() {
                true => line.extend(character.escape_default()),
                false => line.push(character),
            }
        }
        Self::Input(line)
    }

    /// Return the error of an invalid command line.
    pub(crate) fn command(line: &str, problem: impl Display) -> Self {
        let line: String = line.trim().chars().take(80).collect();
        Self::input(format!(
            "the command {line:?} cannot be understood: {problem}"
        ))
    }

    /// Return the error of a thread that has ended unexpectedly.
    pub(crate) fn thread_ended(thread: &'static str) -> Self {
        KernelError::ThreadEnded { thread }.into()
    }
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Table { .. } => Self::input(format!("configuration, {error}")),
            TableError::File(error) => Self::input(error),
        }
    }
}
