//! Errors, in sentences that name the object, the place and the remedy.

use cellbed_link::graph::table::TableError;
use cellbed_link::language::LanguageError;
pub use cellbed_netdev::Error as KernelError;
pub(crate) use cellbed_netdev::Trying;

/// Everything that stops the emulator, or one of its commands.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first line on standard input is no configuration.
    #[error("the configuration line cannot be read: {0}")]
    ConfigurationSyntax(String),

    /// Standard input ended before a configuration came.
    #[error("no configuration: standard input ended before the first line")]
    NoConfiguration,

    /// The configuration is well formed and asks for something impossible.
    #[error("configuration, {place}: {problem}")]
    Configuration {
        /// The part of the configuration, such as `directions[2] (core.uplink)`.
        place: String,
        /// Problem and correct value.
        problem: String,
    },

    /// A file that a stage names: `FILE:LINE: reason`, or why it cannot be opened.
    #[error("{0}")]
    StageFile(LanguageError),

    /// A command line that is no command.
    #[error("the command {line:?} cannot be understood: {problem}")]
    Command {
        /// The line as it came, shortened.
        line: String,
        /// Problem of the value.
        problem: String,
    },

    /// The kernel refused something, or a thread is gone.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Return the error of a stage of the direction or list at `place`.
    pub(crate) fn stage(place: impl Into<String>, error: LanguageError) -> Self {
        match error {
            LanguageError::Table(fault) => Self::configuration(place, fault.to_string()),
            file => Self::StageFile(file),
        }
    }

    /// Return the error of a thread that has ended unexpectedly.
    pub(crate) fn thread_ended(thread: &'static str) -> Self {
        KernelError::ThreadEnded { thread }.into()
    }

    /// A configuration error at `place`.
    pub(crate) fn configuration(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Configuration {
            place: one_line(&place.into()),
            problem: one_line(&problem.into()),
        }
    }
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Table { place, problem } => Self::configuration(place, problem),
            TableError::File(error) => Self::StageFile(error),
        }
    }
}

/// The text in one line: messages quote any user input.
pub(crate) fn one_line(text: &impl std::fmt::Display) -> String {
    let mut line = String::new();
    for character in text.to_string().chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}
